"""Accounts and the IAM API: users, keys, groups, roles and policies, and what they may do with buckets.

Arguments: the program, and the folder of the cluster. The environment has AWS_ENDPOINT_URL and the keys of
a user.
"""

import json
import os
import subprocess
import sys
import time

import boto3
import swiftclient
from botocore.client import Config
from botocore.exceptions import ClientError

from s3_client import client, code, commands, empty, eventually

program, folder = sys.argv[1:]
endpoint = os.environ["AWS_ENDPOINT_URL"]
nacre = commands(program, folder)
FULL = "arn:aws:iam::aws:policy/AmazonS3FullAccess"


def service(name, keys, token=None):
    config = Config(retries={"max_attempts": 1})
    return boto3.client(
        name,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
        aws_session_token=token,
        config=config,
    )


def may(call, **arguments):
    """Whether a call is not refused."""
    try:
        call(**arguments)
    except ClientError as e:
        assert e.response["Error"]["Code"] in ["AccessDenied", "InvalidAccessKeyId", "403"], e
        return False
    return True


def document(effect, action, resource="*", **more):
    statement = {"Effect": effect, "Action": action, **({"Resource": resource} if resource else {}), **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def root(account, name):
    """A new root user of an account, and its keys."""
    words = ["--uid", name, "--display-name", name, "--account-id", account, "--account-root"]
    made = nacre("user", "create", *words)
    return made, (made["keys"][0]["access_key"], made["keys"][0]["secret_key"])


# An account and its root user.
limits = ["--email", "works@example.com", "--max-users", "5"]
account = nacre("account", "create", "--account-name", "works", *limits)
own = account["id"]
assert len(own) == 20 and account["max_users"] == 5 and account["max_access_keys"] == 4, account
assert nacre("account", "get", "--account-name", "works") == account and nacre("account", "list") == [own]
made, boss = root(own, "boss")
assert (made["account_id"], made["type"]) == (own, "root"), made
iam, bosses = service("iam", boss), client(*boss)
assert service("sts", boss).get_caller_identity()["Account"] == own
admin = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
assert code(service("iam", admin).list_users) == "AccessDenied"
assert code(service("iam", (boss[0], "wrong")).list_users) == "SignatureDoesNotMatch"

# Over Swift, too: older versions are copied in the account's name.
nacre("key", "create", "--uid", "boss", "--key-type", "swift", "--secret", "geheim")
swift = swiftclient.Connection(f"{endpoint}/auth/v1.0", "boss", "geheim", retries=0)
assert swift.get_auth()[0] == f"{endpoint}/swift/v1/AUTH_{own}"
swift.put_container("older")
swift.put_container("newer", {"X-Versions-Location": "older"})
swift.put_object("newer", "o", b"one")
swift.put_object("newer", "o", b"two")
[copy] = swift.get_container("older")[1]
assert swift.get_object("older", copy["name"])[1] == b"one", copy
for bucket in "newer", "older":
    empty(bosses, bucket)

# Users, and what they may do: nothing, at first.
anna = iam.create_user(UserName="Anna", Path="/staff/")["User"]
assert (anna["Arn"], anna["Path"]) == (f"arn:aws:iam::{own}:user/staff/Anna", "/staff/"), anna
assert code(iam.create_user, UserName="anna") == "EntityAlreadyExists"
assert iam.get_user(UserName="Anna")["User"] == anna and iam.get_user()["User"]["UserName"] == "boss"
assert code(iam.get_user, UserName="none") == "NoSuchEntity"
assert code(iam.create_user, UserName="a/b") == "ValidationError"
made = iam.create_access_key(UserName="Anna")["AccessKey"]
assert made["Status"] == "Active", made
annas_keys = made["AccessKeyId"], made["SecretAccessKey"]
annas = client(*annas_keys)
bosses.create_bucket(Bucket="works")
bosses.put_object(Bucket="works", Key="plan", Body=b"plan")
assert bosses.get_bucket_acl(Bucket="works")["Owner"]["ID"] == own
assert nacre("bucket", "stats", "--bucket", "works")["owner"] == own
for call, more in [
    (annas.get_object, {"Bucket": "works", "Key": "plan"}),
    (annas.list_buckets, {}),
    (annas.create_bucket, {"Bucket": "annas"}),
    (service("iam", annas_keys).list_users, {}),
]:
    assert code(call, **more) == "AccessDenied", call

# A policy of the user, one of a group, and a managed one.
read = document("Allow", "s3:GetObject", "arn:aws:s3:::works/*")
iam.put_user_policy(UserName="Anna", PolicyName="read", PolicyDocument=read)
got = iam.get_user_policy(UserName="Anna", PolicyName="read")
assert got["PolicyDocument"] == json.loads(read), got
assert iam.list_user_policies(UserName="Anna")["PolicyNames"] == ["read"]
bad = {"UserName": "Anna", "PolicyName": "x", "PolicyDocument": "{}"}
assert code(iam.put_user_policy, **bad) == "MalformedPolicyDocument"
assert annas.get_object(Bucket="works", Key="plan")["Body"].read() == b"plan"
assert code(annas.put_object, Bucket="works", Key="new", Body=b"") == "AccessDenied"
iam.delete_user_policy(UserName="Anna", PolicyName="read")
assert code(iam.delete_user_policy, UserName="Anna", PolicyName="read") == "NoSuchEntity"
assert not may(annas.get_object, Bucket="works", Key="plan")

group = iam.create_group(GroupName="writers")["Group"]
assert group["Arn"] == f"arn:aws:iam::{own}:group/writers"
iam.put_group_policy(GroupName="writers", PolicyName="w", PolicyDocument=document("Allow", "s3:PutObject"))
iam.attach_group_policy(GroupName="writers", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
iam.add_user_to_group(GroupName="writers", UserName="Anna")
assert [u["UserName"] for u in iam.get_group(GroupName="writers")["Users"]] == ["Anna"]
assert [g["GroupName"] for g in iam.list_groups_for_user(UserName="Anna")["Groups"]] == ["writers"]
annas.put_object(Bucket="works", Key="annas", Body=b"a")
assert bosses.get_object(Bucket="works", Key="annas")["Body"].read() == b"a"
assert [b["Name"] for b in annas.list_buckets()["Buckets"]] == ["works"]
iam.update_group(GroupName="writers", NewGroupName="authors")
assert code(iam.get_group, GroupName="writers") == "NoSuchEntity"
assert may(annas.get_object, Bucket="works", Key="plan")
assert code(iam.delete_group, GroupName="authors") == "DeleteConflict"
iam.remove_user_from_group(GroupName="authors", UserName="Anna")
assert not may(annas.get_object, Bucket="works", Key="plan")
iam.delete_group_policy(GroupName="authors", PolicyName="w")
attached = iam.list_attached_group_policies(GroupName="authors")["AttachedPolicies"]
assert [p["PolicyName"] for p in attached] == ["AmazonS3ReadOnlyAccess"]
iam.detach_group_policy(GroupName="authors", PolicyArn=attached[0]["PolicyArn"])
iam.delete_group(GroupName="authors")
assert iam.list_groups()["Groups"] == []

iam.attach_user_policy(UserName="Anna", PolicyArn=FULL)
assert code(iam.attach_user_policy, UserName="Anna", PolicyArn=FULL + "x") == "NoSuchEntity"
assert may(annas.create_bucket, Bucket="annas")
assert code(service("iam", annas_keys).create_user, UserName="Carl") == "AccessDenied"
rights = document("Allow", ["iam:*AccessKey*"], f"arn:aws:iam::{own}:user/staff/${{aws:username}}")
iam.put_user_policy(UserName="Anna", PolicyName="keys", PolicyDocument=rights)
keys = service("iam", annas_keys)
second = keys.create_access_key()["AccessKey"]["AccessKeyId"]
assert len(keys.list_access_keys()["AccessKeyMetadata"]) == 2
assert code(keys.list_access_keys, UserName="boss") == "AccessDenied"

# Keys are put aside and removed.
iam.update_access_key(UserName="Anna", AccessKeyId=annas_keys[0], Status="Inactive")
assert code(annas.list_buckets) == "InvalidAccessKeyId"
iam.update_access_key(UserName="Anna", AccessKeyId=annas_keys[0], Status="Active")
assert may(annas.list_buckets)
iam.delete_access_key(UserName="Anna", AccessKeyId=second)
for _ in range(3):
    iam.create_access_key(UserName="Anna")
assert code(iam.create_access_key, UserName="Anna") == "LimitExceeded"

# Pages, and the most users.
for name in ["carl", "dora", "emil"]:
    iam.create_user(UserName=name)
assert code(iam.create_user, UserName="fred") == "LimitExceeded"
pages = list(iam.get_paginator("list_users").paginate(PaginationConfig={"PageSize": 2}))
pages = [[u["UserName"] for u in page["Users"]] for page in pages]
assert pages == [["Anna", "boss"], ["carl", "dora"], ["emil"]], pages
iam.update_user(UserName="emil", NewUserName="Erna", NewPath="/staff/")
assert [u["UserName"] for u in iam.list_users(PathPrefix="/staff/")["Users"]] == ["Anna", "Erna"]

# Of two accounts, both must allow what crosses them.
other = nacre("account", "create", "--account-name", "others")["id"]
_, olga = root(other, "olga")
olgas = client(*olga)
assert code(olgas.get_object, Bucket="works", Key="plan") == "AccessDenied"
others = {"AWS": f"arn:aws:iam::{other}:root"}
lets_in = document("Allow", "s3:GetObject", "arn:aws:s3:::works/*", Principal=others)
bosses.put_bucket_policy(Bucket="works", Policy=lets_in)
assert olgas.get_object(Bucket="works", Key="plan")["Body"].read() == b"plan"
assert service("iam", olga).list_users()["Users"][0]["UserName"] == "olga"

# Roles, and sessions of them.
trust = document("Allow", "sts:AssumeRole", None, Principal={"AWS": f"arn:aws:iam::{own}:user/staff/Anna"})
role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=trust, Description="reads")["Role"]
assert role["Arn"] == f"arn:aws:iam::{own}:role/reader", role
assert iam.get_role(RoleName="reader")["Role"]["AssumeRolePolicyDocument"] == json.loads(trust)
iam.put_role_policy(RoleName="reader", PolicyName="read", PolicyDocument=read)
session = service("sts", annas_keys).assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]
reader = client(session["AccessKeyId"], session["SecretAccessKey"], token=session["SessionToken"])
assert reader.get_object(Bucket="works", Key="plan")["Body"].read() == b"plan"
assert code(reader.put_object, Bucket="works", Key="plan", Body=b"") == "AccessDenied"
assert code(service("sts", olga).assume_role, RoleArn=role["Arn"], RoleSessionName="test") == "AccessDenied"
iam.attach_role_policy(RoleName="reader", PolicyArn=FULL)
reader.put_object(Bucket="works", Key="of role", Body=b"r")
assert bosses.get_object(Bucket="works", Key="of role")["Body"].read() == b"r"
assert [r["RoleName"] for r in iam.list_roles()["Roles"]] == ["reader"]
assert iam.get_account_summary()["SummaryMap"]["Users"] == 5
assert code(iam.delete_role, RoleName="reader") == "DeleteConflict"
iam.detach_role_policy(RoleName="reader", PolicyArn=FULL)
iam.delete_role_policy(RoleName="reader", PolicyName="read")
iam.update_assume_role_policy(RoleName="reader", PolicyDocument=trust)
iam.delete_role(RoleName="reader")

# The quota of an account is one of all its users.
nacre("quota", "set", "--account-id", own, "--quota-scope", "account", "--max-objects", "4")
nacre("quota", "enable", "--account-id", own, "--quota-scope", "account")


def is_full():
    try:
        annas.put_object(Bucket="annas", Key=f"k{time.monotonic_ns()}", Body=b"")
    except ClientError as e:
        return e.response["Error"]["Code"] == "QuotaExceeded"
    return False


eventually(is_full)
assert nacre("account", "stats", "--account-id", own)["stats"]["num_objects"] >= 4

# The command, as users have it.
environment = {**os.environ, "AWS_ACCESS_KEY_ID": boss[0], "AWS_SECRET_ACCESS_KEY": boss[1]}
environment.setdefault("AWS_DEFAULT_REGION", "us-east-1")
aws = ["aws", "--endpoint-url", endpoint, "--output", "json"]
aws += ["iam", "list-access-keys", "--user-name", "Anna"]
listed = json.loads(subprocess.run(aws, check=True, env=environment, stdout=subprocess.PIPE).stdout)
assert len(listed["AccessKeyMetadata"]) == 4, listed

assert code(iam.delete_user, UserName="Anna") == "DeleteConflict"
for key in listed["AccessKeyMetadata"]:
    iam.delete_access_key(UserName="Anna", AccessKeyId=key["AccessKeyId"])
iam.detach_user_policy(UserName="Anna", PolicyArn=FULL)
iam.delete_user_policy(UserName="Anna", PolicyName="keys")
for name in ["Anna", "carl", "dora", "Erna"]:
    iam.delete_user(UserName=name)
for bucket in ["works", "annas"]:
    empty(bosses, bucket)
for user in ["boss", "olga"]:
    nacre("user", "rm", "--uid", user)
for account in [own, other]:
    nacre("account", "rm", "--account-id", account)
assert nacre("account", "list") == []
