"""Users, keys, policies, lists and quotas: administration by commands and by the Admin Ops API, and what the
users may do then.

Arguments: the program, and the folder of the cluster. The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import boto3
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from s3_client import admin, client, code, commands, eventually

program, folder = sys.argv[1:]
endpoint = os.environ["AWS_ENDPOINT_URL"]
nacre = commands(program, folder)


def refused(*words):
    """What a command says that fails."""
    command = [program, "s3", *words, "--data", folder]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert result.returncode != 0, words
    return result.stderr


def keys(user):
    return user["keys"][0]["access_key"], user["keys"][0]["secret_key"]


def fetch(url, method="GET", **headers):
    """Status and body of a request without the client's help."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


anna = nacre("user", "create", "--uid", "anna", "--display-name", "Anna", "--email", "anna@example.com")
assert (anna["user_id"], anna["suspended"], anna["max_buckets"]) == ("anna", 0, 1000)
assert anna["caps"] == [] and anna["user_quota"]["enabled"] is False
bert = nacre("user", "create", "--uid", "bert", "--display-name", "Bert", "--access-key", "BERT", "--secret", "s")
assert keys(bert) == ("BERT", "s")
assert "UserAlreadyExists" in refused("user", "create", "--uid", "anna", "--display-name", "A")
assert "EmailExists" in refused("user", "modify", "--uid", "bert", "--email", "anna@example.com")
assert "KeyExists" in refused("key", "create", "--uid", "anna", "--access-key", "BERT")
assert "NoSuchUser" in refused("user", "info", "--uid", "carl")
assert nacre("user", "ls") == ["admin", "anna", "bert"]
assert nacre("user", "info", "--email", "anna@example.com")["user_id"] == "anna"

annas, berts = client(*keys(anna)), client("BERT", "s")

# Buckets are private, and owners are told apart.
annas.create_bucket(Bucket="annas")
annas.put_object(Bucket="annas", Key="dir/key", Body=b"body")
annas.put_object(Bucket="annas", Key="secret", Body=b"secret")
assert [b["Name"] for b in annas.list_buckets()["Buckets"]] == ["annas"]
assert berts.list_buckets()["Buckets"] == []
assert code(berts.create_bucket, Bucket="annas") == "BucketAlreadyExists"
assert code(berts.get_object, Bucket="annas", Key="dir/key") == "AccessDenied"
assert code(berts.list_objects_v2, Bucket="annas") == "AccessDenied"
assert code(berts.get_bucket_policy, Bucket="annas") == "AccessDenied"
assert code(berts.copy_object, Bucket="annas", Key="x", CopySource="annas/dir/key") == "AccessDenied"
assert code(annas.create_bucket, Bucket="admin") == "InvalidBucketName"
url = f"{endpoint}/annas/dir/key"
assert fetch(url)[0] == 403
assert code(annas.get_bucket_policy, Bucket="annas") == "NoSuchBucketPolicy"

# A presigned URL is good for one method, one object, and the headers it was made with.
signed = annas.generate_presigned_url("get_object", Params={"Bucket": "annas", "Key": "dir/key"})
assert fetch(signed) == (200, b"body")
assert fetch(signed, "DELETE")[0] == 403
assert fetch(signed.replace("dir/key", "secret"))[0] == 403
assert fetch(signed, Host="other.example.com")[0] == 403
put = annas.generate_presigned_url("put_object", Params={"Bucket": "annas", "Key": "dir/key"})
assert fetch(put, "PUT", x_amz_copy_source="/annas/secret")[0] == 403
assert fetch(put, "PUT", x_amz_acl="public-read")[0] == 403
assert fetch(signed) == (200, b"body")

# Policies.
policy = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam:::user/bert"},
            "Action": ["s3:GetObject", "s3:ListBucket", "s3:DeleteObject"],
            "Resource": ["arn:aws:s3:::annas", "arn:aws:s3:::annas/*"],
        },
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*Object", "Resource": "arn:aws:s3:::annas/secret"},
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::annas/dir/*"},
    ],
}
annas.put_bucket_policy(Bucket="annas", Policy=json.dumps(policy))
assert json.loads(annas.get_bucket_policy(Bucket="annas")["Policy"]) == policy
assert annas.get_bucket_policy_status(Bucket="annas")["PolicyStatus"]["IsPublic"] is True
assert berts.get_object(Bucket="annas", Key="dir/key")["Body"].read() == b"body"
assert [o["Key"] for o in berts.list_objects_v2(Bucket="annas")["Contents"]] == ["dir/key", "secret"]
assert code(berts.get_object, Bucket="annas", Key="secret") == "AccessDenied"
assert code(annas.get_object, Bucket="annas", Key="secret") == "AccessDenied"
assert code(berts.put_object, Bucket="annas", Key="new", Body=b"") == "AccessDenied"
assert code(berts.get_object, Bucket="annas", Key="none") == "NoSuchKey"
assert fetch(url) == (200, b"body")
annas.put_object(Bucket="annas", Key="other", Body=b"")

# Versions and locks need actions of their own.
other = {"Bucket": "annas", "Key": "other"}
assert code(berts.get_object, VersionId="null", **other) == "AccessDenied"
assert annas.get_object(VersionId="null", **other)["Body"].read() == b""
assert code(berts.delete_object, VersionId="null", **other) == "AccessDenied"
assert code(berts.delete_object, BypassGovernanceRetention=True, **other) == "AccessDenied"
assert code(berts.put_object_legal_hold, LegalHold={"Status": "ON"}, **other) == "AccessDenied"
deleted = berts.delete_objects(Bucket="annas", Delete={"Objects": [{"Key": "other"}, {"Key": "secret"}]})
assert [line["Key"] for line in deleted["Deleted"]] == ["other"]
assert [(line["Key"], line["Code"]) for line in deleted["Errors"]] == [("secret", "AccessDenied")]
assert code(annas.put_bucket_policy, Bucket="annas", Policy="{}") == "MalformedPolicy"
block = {"RestrictPublicBuckets": True, "BlockPublicPolicy": True, "BlockPublicAcls": True}
annas.put_public_access_block(Bucket="annas", PublicAccessBlockConfiguration=block)
assert fetch(url)[0] == 403
assert code(annas.put_bucket_policy, Bucket="annas", Policy=json.dumps(policy)) == "AccessDenied"
assert code(annas.put_bucket_acl, Bucket="annas", ACL="public-read") == "AccessDenied"
annas.delete_public_access_block(Bucket="annas")
annas.delete_bucket_policy(Bucket="annas")
assert fetch(url)[0] == 403

# Lists. What bert writes into the bucket is bert's.
annas.put_bucket_acl(Bucket="annas", ACL="public-read-write")
assert fetch(f"{endpoint}/annas")[0] == 200 and fetch(url)[0] == 403
annas.put_object_acl(Bucket="annas", Key="dir/key", ACL="public-read")
assert fetch(url) == (200, b"body")
grants = annas.get_object_acl(Bucket="annas", Key="dir/key")["Grants"]
assert [g["Permission"] for g in grants] == ["FULL_CONTROL", "READ"]
berts.put_object(Bucket="annas", Key="berts", Body=b"b")
assert code(annas.get_object, Bucket="annas", Key="berts") == "AccessDenied"
berts.put_object(Bucket="annas", Key="berts", Body=b"b", GrantRead='emailAddress="anna@example.com"')
assert annas.get_object(Bucket="annas", Key="berts")["Body"].read() == b"b"
assert code(annas.get_object_acl, Bucket="annas", Key="berts") == "AccessDenied"
annas.put_bucket_acl(Bucket="annas", ACL="private")
rules = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
annas.put_bucket_ownership_controls(Bucket="annas", OwnershipControls=rules)
assert annas.get_bucket_ownership_controls(Bucket="annas")["OwnershipControls"] == rules
assert fetch(url)[0] == 403 and code(berts.get_object, Bucket="annas", Key="berts") == "AccessDenied"
assert code(annas.put_object, Bucket="annas", Key="k", ACL="public-read") == "AccessControlListNotSupported"
payer = {"Payer": "Requester"}
annas.put_bucket_request_payment(Bucket="annas", RequestPaymentConfiguration=payer)
assert annas.get_bucket_request_payment(Bucket="annas")["Payer"] == "Requester"

# Subusers and suspended users.
nacre("subuser", "create", "--uid", "anna", "--subuser", "reader", "--access", "read")
reader = nacre("key", "create", "--uid", "anna", "--subuser", "reader", "--access-key", "READER", "--secret", "r")
assert reader["subusers"] == [{"id": "anna:reader", "permissions": "read"}]
readers = client("READER", "r")
assert readers.get_object(Bucket="annas", Key="dir/key")["Body"].read() == b"body"
assert code(readers.put_object, Bucket="annas", Key="new", Body=b"") == "AccessDenied"
nacre("user", "suspend", "--uid", "bert")
eventually(lambda: code(berts.create_bucket, Bucket="annas") == "UserSuspended")
nacre("user", "enable", "--uid", "bert")

# Quotas are exact, and what replaces an object takes no more room.
nacre("quota", "set", "--uid", "anna", "--quota-scope", "bucket", "--max-objects", "5", "--max-size", "1M")
nacre("quota", "enable", "--uid", "anna", "--quota-scope", "bucket")
annas.create_bucket(Bucket="quota")
small = [f"k{n}" for n in range(5)]


def is_limited():
    for key in small:
        annas.put_object(Bucket="quota", Key=key, Body=b"x")
    try:
        annas.put_object(Bucket="quota", Key="more", Body=b"x")
    except annas.exceptions.ClientError as e:
        assert e.response["Error"]["Code"] == "QuotaExceeded", e
        return True
    annas.delete_object(Bucket="quota", Key="more")
    return False


eventually(is_limited)
annas.delete_object(Bucket="quota", Key="k0")
# The gateway refuses it before it has read the body, so its connection is not used again.
once = client(*keys(anna))
assert code(once.put_object, Bucket="quota", Key="k0", Body=bytes(2 << 20)) == "QuotaExceeded"
annas.put_object(Bucket="quota", Key="k0", Body=b"x")
usage = nacre("bucket", "stats", "--bucket", "quota")
assert usage["usage"]["rgw.main"]["num_objects"] == 5 and usage["usage"]["rgw.main"]["size"] == 5
assert usage["owner"] == "anna"
# Also when a bucket is removed with all that is in it.
before = nacre("user", "stats", "--uid", "anna")["stats"]["num_objects"]
annas.create_bucket(Bucket="purged")
for key in small[:3]:
    annas.put_object(Bucket="purged", Key=key, Body=bytes(5000))
assert nacre("user", "stats", "--uid", "anna")["stats"]["num_objects"] == before + 3
nacre("bucket", "rm", "--bucket", "purged", "--purge-objects")
assert nacre("user", "stats", "--uid", "anna")["stats"]["num_objects"] == before
assert nacre("bucket", "ls", "--uid", "anna") == ["annas", "quota"]
check = nacre("bucket", "check", "--bucket", "quota")["check_result"]
assert check["existing_header"] == check["calculated_header"]

# The Admin Ops API, for those with capabilities.
root = nacre("user", "create", "--uid", "root", "--display-name", "Root", "--caps", "users=*;buckets=*;info=read")
by = keys(root)
assert admin("GET", "user", by, uid="anna")[1]["display_name"] == "Anna"
assert admin("GET", "user", keys(anna), uid="anna")[0] == 403
status, made = admin("PUT", "user", by, uid="dora", display_name="Dora D", max_buckets=1)
assert (status, made["max_buckets"], len(made["keys"])) == (200, 1, 1)
assert admin("PUT", "user", by, uid="dora", display_name="Dora")[1]["Code"] == "UserAlreadyExists"
doras = client(*keys(made))
doras.create_bucket(Bucket="doras")
assert code(doras.create_bucket, Bucket="further") == "TooManyBuckets"
assert admin("POST", "user", by, uid="dora", max_buckets=-1)[1]["max_buckets"] == -1
assert admin("PUT", "user", by, uid="dora", quota="", quota_type="user", max_objects=1, enabled="true")[0] == 200
assert admin("GET", "user", by, uid="dora", quota="", quota_type="user")[1]["max_objects"] == 1
assert admin("PUT", "user", by, uid="dora", caps="", user_caps="usage=read")[1] == [
    {"type": "usage", "perm": "read"}
]
assert len(admin("PUT", "user", by, uid="dora", key="")[1]) == 2
assert admin("GET", "bucket", by, uid="dora") == (200, ["doras"])
assert admin("GET", "bucket", by, bucket="doras", stats="true")[1]["owner"] == "dora"
assert admin("GET", "info", by)[1]["info"]["storage_backends"][0]["name"] == "rados"
assert admin("GET", "metadata/user", by)[0] == 403
assert admin("DELETE", "user", by, uid="dora")[1]["Code"] == "BucketNotEmpty"
assert admin("DELETE", "user", by, uid="dora", purge_data="true")[0] == 200
assert admin("GET", "user", by, uid="dora")[1]["Code"] == "NoSuchUser"

# A policy that is attached to a user.
home = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::quota/*"}
document = json.dumps({"Version": "2012-10-17", "Statement": [home]})
nacre("user", "policy", "put", "--uid", "bert", "--policy-name", "home", "--policy-doc", document)
assert nacre("user", "policy", "ls", "--uid", "bert") == ["home"]


def is_allowed():
    try:
        return berts.get_object(Bucket="quota", Key="k1")["Body"].read() == b"x"
    except berts.exceptions.ClientError as e:
        assert e.response["Error"]["Code"] in ["AccessDenied", "UserSuspended"], e
        return False


eventually(is_allowed)
assert code(berts.put_object, Bucket="quota", Key="k1", Body=b"y") == "AccessDenied"

# Sessions have the rights of a role, or of their user, for a time.
trust = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam:::user/bert"}, "Action": "sts:AssumeRole"}
trust = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
role = nacre("role", "create", "--role-name", "reader", "--assume-role-policy-doc", trust)
nacre("role-policy", "put", "--role-name", "reader", "--policy-name", "p", "--policy-doc", document)


def session(by, call, **arguments):
    sts = boto3.client(
        "sts",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=by[0],
        aws_secret_access_key=by[1],
    )
    return getattr(sts, call)(**arguments)


def with_token(made):
    made = made["Credentials"]
    return client(made["AccessKeyId"], made["SecretAccessKey"], token=made["SessionToken"])


taken = session(("BERT", "s"), "assume_role", RoleArn=role["Arn"], RoleSessionName="test")
assert taken["AssumedRoleUser"]["Arn"] == "arn:aws:sts:::assumed-role/reader/test"
assert with_token(taken).get_object(Bucket="quota", Key="k2")["Body"].read() == b"x"
assert code(with_token(taken).put_object, Bucket="quota", Key="k2", Body=b"y") == "AccessDenied"
assert code(with_token(taken).get_object, Bucket="annas", Key="dir/key") == "AccessDenied"
try:
    session(keys(anna), "assume_role", RoleArn=role["Arn"], RoleSessionName="test")
    raise AssertionError("anna has taken the role")
except ClientError as e:
    assert e.response["ResponseMetadata"]["HTTPStatusCode"] == 403, e
    assert e.response["Error"]["Code"] == "AccessDenied", e
own = session(keys(anna), "get_session_token")
assert with_token(own).get_object(Bucket="quota", Key="k2")["Body"].read() == b"x"
own["Credentials"]["SessionToken"] = taken["Credentials"]["SessionToken"]
assert code(with_token(own).get_object, Bucket="quota", Key="k2") == "InvalidToken"
assert session(keys(anna), "get_caller_identity")["UserId"] == "anna"
nacre("role-policy", "rm", "--role-name", "reader", "--policy-name", "p")
nacre("role", "rm", "--role-name", "reader")

nacre("bucket", "link", "--bucket", "quota", "--uid", "bert")
assert nacre("bucket", "stats", "--bucket", "quota")["owner"] == "bert"
nacre("bucket", "rm", "--bucket", "quota", "--purge-objects")
nacre("user", "rm", "--uid", "anna", "--purge-data")
for user in ["bert", "root"]:
    nacre("user", "rm", "--uid", user)
assert nacre("user", "ls") == ["admin"]
assert not {"annas", "doras", "quota"} & set(nacre("bucket", "ls"))
