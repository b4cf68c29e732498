"""Writes through two gateways, of which one is killed meanwhile, and checks what was acknowledged.

write ENDPOINT: prints "KEY MD5" for each write that was acknowledged, until the gateway is gone and some more.
check FILE: reads all of them, and everything that is listed.
"""

import hashlib
import os
import sys
import threading
import time

from botocore.exceptions import BotoCoreError, ClientError

import s3_client


def impatient(endpoint):
    return s3_client.client(endpoint=endpoint, retries={"max_attempts": 0}, max_pool_connections=16)


def write(victim):
    home = impatient(os.environ["AWS_ENDPOINT_URL"])
    home.create_bucket(Bucket="load")
    end, lock = time.time() + 10, threading.Lock()

    def work(number):
        s3 = impatient(victim if number % 2 else os.environ["AWS_ENDPOINT_URL"])
        count = 0
        while time.time() < end:
            count += 1
            # Each key is written by one thread, some of them again and again.
            key = f"{number}/{count if count % 3 else 0}"
            body = os.urandom([100, 5000, 5 << 20][0 if count % 20 else count % 3])
            try:
                s3.put_object(Bucket="load", Key=key, Body=body)
            except (ClientError, BotoCoreError):
                # It may be there or not: nothing more is known of this key.
                with lock:
                    print(key, "unknown", flush=True)
                s3 = impatient(os.environ["AWS_ENDPOINT_URL"])
                continue
            with lock:
                print(key, hashlib.md5(body).hexdigest(), flush=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def check(path):
    s3 = impatient(os.environ["AWS_ENDPOINT_URL"])
    expected = {}
    for line in open(path):
        key, md5 = line.split()
        expected[key] = md5
    assert len(expected) > 100, len(expected)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="load")
    listed = [line["Key"] for page in pages for line in page.get("Contents", [])]
    assert listed == sorted(listed)
    missing = {key for key, md5 in expected.items() if md5 != "unknown"} - set(listed)
    assert not missing, missing
    for key in listed:
        body = s3.get_object(Bucket="load", Key=key)["Body"].read()
        md5 = expected.get(key, "unknown")
        assert md5 in ["unknown", hashlib.md5(body).hexdigest()], key


globals()[sys.argv[1]](*sys.argv[2:])
