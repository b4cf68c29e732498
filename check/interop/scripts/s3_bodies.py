"""Bodies of all sizes through a gateway: written, replaced, copied, in parts, and read again later.

Arguments: `write` and a name, or `check` and the names of what was written before. The environment has
AWS_ENDPOINT_URL and the keys of a user. What a name's bodies are follows from the name.
"""

import random
import sys

from s3_client import client

SIZES = [0, 4096, 4097, 300_001, (4 << 20) + 1]
s3 = client()


def bodies(name):
    """Each key with its body."""
    rng = random.Random(name)
    for size in SIZES:
        yield f"{name}/{size}", rng.randbytes(size)
    yield f"{name}/parts", rng.randbytes((5 << 20) + 3)


def put(key, body):
    if not key.endswith("/parts"):
        s3.put_object(Bucket="bodies", Key=key, Body=body)
        return
    upload = s3.create_multipart_upload(Bucket="bodies", Key=key)["UploadId"]
    parts = []
    for number, at in enumerate(range(0, len(body), 5 << 20), 1):
        part = s3.upload_part(
            Bucket="bodies", Key=key, UploadId=upload, PartNumber=number, Body=body[at : at + (5 << 20)]
        )
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    done = {"Parts": parts}
    s3.complete_multipart_upload(Bucket="bodies", Key=key, UploadId=upload, MultipartUpload=done)


def write(name):
    try:
        s3.create_bucket(Bucket="bodies")
    except s3.exceptions.BucketAlreadyOwnedByYou:
        pass
    for key, body in bodies(name):
        put(key, b"replaced" * 70_000)
        put(key, body)
        s3.copy_object(Bucket="bodies", Key=key + ".copy", CopySource={"Bucket": "bodies", "Key": key})


def check(name):
    for key, body in bodies(name):
        for of in (key, key + ".copy"):
            assert s3.get_object(Bucket="bodies", Key=of)["Body"].read() == body, of
        if len(body) > 3:
            part = f"bytes={len(body) // 2 - 1}-{len(body) // 2}"
            got = s3.get_object(Bucket="bodies", Key=key, Range=part)["Body"].read()
            assert got == body[len(body) // 2 - 1 : len(body) // 2 + 1], key


if __name__ == "__main__":
    for name in sys.argv[2:]:
        if sys.argv[1] == "write":
            write(name)
        check(name)
