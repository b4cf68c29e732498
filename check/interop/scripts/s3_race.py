"""Writers race for keys through two gateways: AWS_ENDPOINT_URL and the one that is given."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError

from s3_client import client

WRITERS = 32


def conditional(endpoint):
    s3 = client(endpoint=endpoint, max_pool_connections=WRITERS, retries={"max_attempts": 1})

    # Debian's boto3 has no parameters for conditions of a PUT. They go in before the request is signed.
    def add(request, **_):
        for name, value in conditions.items():
            request.headers[name] = value
    s3.meta.events.register("before-sign.s3.PutObject", add)
    return s3


conditions = {}
gateways = [conditional(os.environ["AWS_ENDPOINT_URL"]), conditional(sys.argv[1])]
gateways[0].create_bucket(Bucket="race")


def race(key):
    """How many of the writers succeed, and what is there then."""

    def put(n):
        try:
            gateways[n % 2].put_object(Bucket="race", Key=key, Body=b"%d" % n)
            return n
        except ClientError as e:
            assert e.response["ResponseMetadata"]["HTTPStatusCode"] == 412, e
            return None

    with ThreadPoolExecutor(WRITERS) as pool:
        won = [n for n in pool.map(put, range(WRITERS)) if n is not None]
    got = gateways[1].get_object(Bucket="race", Key=key)
    return won, int(got["Body"].read()), got["ETag"]


for attempt in range(5):
    conditions = {"If-None-Match": "*"}
    won, there, etag = race(f"key {attempt}")
    assert won == [there], (won, there)
    # A tag that is not the object's: all fail.
    conditions = {"If-Match": '"00000000000000000000000000000000"'}
    won, again, _ = race(f"key {attempt}")
    assert (won, again) == ([], there), (won, again)
    # Bodies of which none has the tag that is there.
    conditions = {}
    etag = gateways[0].put_object(Bucket="race", Key=f"key {attempt}", Body=b"another")["ETag"]
    conditions = {"If-Match": etag}
    won, there, _ = race(f"key {attempt}")
    assert won == [there], (won, there)
