"""A load with boto3 as it comes, which must see no error while daemons of the cluster are killed.

Prints "begun" when it has begun. Ends when its input does, and then checks: what was acknowledged is there,
and what is listed can be read.
"""

import hashlib
import os
import random
import sys
import threading
import time

import s3_client

WRITERS = 6
SIZES = [100, 3000, 5000, 200_000]


def patient():
    """A client with boto3's own retries."""
    return s3_client.client(retries=None, max_pool_connections=16)


s3 = patient()
s3.create_bucket(Bucket="bear")
ended = threading.Event()
lock = threading.Lock()
faults, slowest = [], {}
# What each key has, by the writer whose key it is.
kept = [{} for _ in range(WRITERS)]
counts = [0] * WRITERS


def timed(kind, call, **arguments):
    begun = time.monotonic()
    answer = call(Bucket="bear", **arguments)
    took = time.monotonic() - begun
    with lock:
        slowest[kind] = max(took, slowest.get(kind, 0))
    return answer


def listed(prefix):
    pages = patient_of.s3.get_paginator("list_objects_v2").paginate(Bucket="bear", Prefix=prefix)
    return [line["Key"] for page in pages for line in page.get("Contents", [])]


patient_of = threading.local()


def work(number):
    patient_of.s3 = own = patient()
    choice = random.Random(number)
    keys = kept[number]
    while not ended.is_set():
        counts[number] += 1
        key = f"{number}/{choice.randrange(500)}"
        body = choice.randbytes(choice.choice(SIZES))
        timed("put", own.put_object, Key=key, Body=body)
        keys[key] = hashlib.md5(body).hexdigest()
        key = choice.choice(sorted(keys))
        got = timed("get", own.get_object, Key=key)["Body"].read()
        assert hashlib.md5(got).hexdigest() == keys[key], f"{key} is not what was written"
        if counts[number] % 10 == 0:
            key = choice.choice(sorted(keys))
            timed("delete", own.delete_object, Key=key)
            del keys[key]
        if counts[number] % 20 == 0:
            begun = time.monotonic()
            found = listed(f"{number}/")
            with lock:
                slowest["list"] = max(time.monotonic() - begun, slowest.get("list", 0))
            assert found == sorted(keys), f"{number}: {set(found) ^ set(keys)}"


def guarded(number):
    try:
        work(number)
    except BaseException as e:
        faults.append(f"writer {number} after {counts[number]} turns: {e!r}")
        ended.set()


threads = [threading.Thread(target=guarded, args=(number,)) for number in range(WRITERS)]
[thread.start() for thread in threads]
print("begun", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
[thread.join() for thread in threads]
assert not faults, faults

expected = {key: md5 for keys in kept for key, md5 in keys.items()}
patient_of.s3 = s3
found = listed("")
assert found == sorted(expected), set(found) ^ set(expected)
for key in found:
    body = s3.get_object(Bucket="bear", Key=key)["Body"].read()
    assert hashlib.md5(body).hexdigest() == expected[key], key
worst = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in sorted(slowest.items()))
print(f"{sum(counts)} turns, {len(expected)} objects; slowest: {worst}")
