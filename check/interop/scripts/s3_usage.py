"""What users ask for: rate limits, the usage log, access logs, notifications, the audit log.

Arguments: the program, the folder of the cluster, a further gateway, and its audit log. The environment has
AWS_ENDPOINT_URL and the keys of a user.
"""

import http.server
import json
import os
import socket
import sys
import threading
import urllib.parse

import boto3
from botocore.exceptions import ClientError

from s3_client import admin, client, code, commands, empty, eventually

program, folder, more, audit = sys.argv[1:]
endpoint = os.environ["AWS_ENDPOINT_URL"]
nacre = commands(program, folder)
operator = ("METER", "secret")


def failed(call):
    """Whether a call is refused now."""
    try:
        call()
    except ClientError:
        return True
    return False


caps = "usage=*;ratelimit=*"
for user, key, caps in [("meter", "METER", ["--caps", caps]), ("slow", "SLOW", [])]:
    keys = ["--access-key", key, "--secret", "secret"]
    nacre("user", "create", "--uid", user, "--display-name", user, *keys, *caps)

# Rate limits: by command, and by the Admin Ops API.
limit = ["--ratelimit-scope", "user", "--uid", "slow"]
nacre("ratelimit", "set", "--max-read-ops", "2", *limit)
nacre("ratelimit", "enable", *limit)
shown = nacre("ratelimit", "get", *limit)["user_ratelimit"]
assert shown.pop("enabled") is True and shown.pop("max_read_ops") == 2, shown
assert set(shown.items()) == {("max_write_ops", 0), ("max_read_bytes", 0), ("max_write_bytes", 0)}, shown
slow = client("SLOW", "secret", retries={"max_attempts": 0})
slow.create_bucket(Bucket="slows")
slow.list_buckets()
slow.list_buckets()
assert code(slow.list_buckets) == "SlowDown"
slow.put_object(Bucket="slows", Key="k", Body=b"12345")
status, shown = admin("GET", "ratelimit", operator, ratelimit_scope="user", uid="slow")
assert (status, shown["user_ratelimit"]["max_read_ops"]) == (200, 2), shown
assert admin("POST", "ratelimit", operator, ratelimit_scope="user", uid="slow", enabled="false")[0] == 200
eventually(lambda: not failed(slow.list_buckets))
limit = {"ratelimit_scope": "bucket", "bucket": "slows"}
assert admin("POST", "ratelimit", operator, max_write_ops=1, enabled="true", **limit)[0] == 200
slow.put_object(Bucket="slows", Key="k", Body=b"12345")
assert code(slow.put_object, Bucket="slows", Key="k", Body=b"1") == "SlowDown"
limit = ["--ratelimit-scope", "bucket", "--bucket", "slows"]
assert nacre("ratelimit", "get", *limit)["bucket_ratelimit"]["enabled"]
nacre("ratelimit", "disable", *limit)
assert nacre("global", "ratelimit", "get")["anonymous_ratelimit"]["enabled"] is False

# The usage log.
assert slow.get_object(Bucket="slows", Key="k")["Body"].read() == b"12345"
assert code(slow.get_object, Bucket="slows", Key="none") == "NoSuchKey"


def usage():
    status, shown = admin("GET", "usage", operator, uid="slow")
    assert status == 200, shown
    [summary] = shown["summary"] or [{"categories": []}]
    return shown["entries"], {line.pop("category"): line for line in summary["categories"]}


eventually(lambda: usage()[1].get("get_obj", {}).get("ops") == 2)
entries, categories = usage()
assert categories["put_obj"]["ops"] == 3 and categories["put_obj"]["successful_ops"] == 2, categories
assert categories["put_obj"]["bytes_received"] >= 10, categories
assert categories["get_obj"]["successful_ops"] == 1 and categories["get_obj"]["bytes_sent"] >= 5, categories
assert categories["list_buckets"]["ops"] >= 3, categories
assert {"slows", ""} == {line["bucket"] for line in entries[0]["buckets"]}, entries
# What a client sent counts, also if it ends the connection before the answer.
url = urllib.parse.urlsplit(slow.generate_presigned_url("put_object", {"Bucket": "slows", "Key": "left"}))
head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {1 << 20}\r\n\r\n"
for _ in range(5):
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(head.encode() + bytes(1 << 20))
eventually(lambda: usage()[1]["put_obj"]["ops"] == 8)
assert usage()[1]["put_obj"]["bytes_received"] > 2 << 20, usage()
shown = nacre("usage", "show", "--uid", "slow", "--bucket", "slows", "--categories", "get_obj")
assert shown["summary"][0]["total"]["ops"] == 2, shown
assert nacre("usage", "show", "--uid", "slow", "--end-date", "2020-01-01")["entries"] == []
assert admin("DELETE", "usage", operator)[0] == 400
assert admin("DELETE", "usage", operator, uid="slow")[0] == 200
assert nacre("usage", "show", "--uid", "slow")["entries"] == []
# What comes after that begins anew.
slow.get_object(Bucket="slows", Key="k")["Body"].read()
eventually(lambda: usage()[1].get("get_obj", {}).get("ops") == 1)

# What a further gateway is told with options: access logs that are written at once, an audit log.
s3 = client(endpoint=more)
for name in ["logged", "logs"]:
    s3.create_bucket(Bucket=name)
status = {"LoggingEnabled": {"TargetBucket": "logs", "TargetPrefix": "p/"}}
s3.put_bucket_logging(Bucket="logged", BucketLoggingStatus=status)
assert s3.get_bucket_logging(Bucket="logged")["LoggingEnabled"]["TargetPrefix"] == "p/"
status = {"LoggingEnabled": {"TargetBucket": "no-such-bucket", "TargetPrefix": ""}}
refused = code(s3.put_bucket_logging, Bucket="logged", BucketLoggingStatus=status)
assert refused == "InvalidTargetBucketForLogging", refused
s3.put_object(Bucket="logged", Key="a b", Body=b"12345")
assert s3.get_object(Bucket="logged", Key="a b")["Body"].read() == b"12345"
assert code(s3.get_object, Bucket="logged", Key="none") == "NoSuchKey"


def logged():
    """The lines of the log."""
    keys = [line["Key"] for line in s3.list_objects_v2(Bucket="logs").get("Contents", [])]
    assert all(key.startswith("p/20") for key in keys), keys
    return "".join(s3.get_object(Bucket="logs", Key=key)["Body"].read().decode() for key in keys)


eventually(lambda: "NoSuchKey" in logged())
for line in ["REST.PUT.OBJECT a%20b \"PUT /logged/a%20b HTTP/1.1\" 200 - - 5 ",
             "REST.GET.OBJECT a%20b \"GET /logged/a%20b HTTP/1.1\" 200 - 5 5 ",
             "REST.GET.OBJECT none \"GET /logged/none HTTP/1.1\" 404 NoSuchKey "]:
    assert line in logged(), logged()

# Notifications, to an endpoint of this script.
events = []


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        events.extend(json.loads(self.rfile.read(int(self.headers["content-length"])))["Records"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=hook.serve_forever, daemon=True).start()
sns = boto3.client("sns", endpoint_url=more, region_name="us-east-1")
attributes = {"push-endpoint": f"http://127.0.0.1:{hook.server_port}/hook", "OpaqueData": "mine"}
arn = sns.create_topic(Name="uploads", Attributes=attributes)["TopicArn"]
assert [topic["TopicArn"] for topic in sns.list_topics()["Topics"]] == [arn]
assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["OpaqueData"] == "mine"
assert code(sns.create_topic, Name="k", Attributes={"push-endpoint": "kafka://h"}) == "InvalidParameter"
rule = {
    "Id": "images",
    "TopicArn": arn,
    "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:Delete"],
    "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "img/"}]}},
}
s3.put_bucket_notification_configuration(
    Bucket="logged", NotificationConfiguration={"TopicConfigurations": [rule]})
[shown] = s3.get_bucket_notification_configuration(Bucket="logged")["TopicConfigurations"]
assert (shown["Id"], shown["TopicArn"], shown["Events"]) == ("images", arn, rule["Events"]), shown
s3.put_object(Bucket="logged", Key="img/a", Body=b"123", Metadata={"color": "blue"})
s3.put_object(Bucket="logged", Key="other", Body=b"123")
s3.copy_object(Bucket="logged", Key="img/b", CopySource="logged/img/a")
s3.delete_object(Bucket="logged", Key="img/a")
told = {("ObjectCreated:Put", "img/a"), ("ObjectCreated:Copy", "img/b"), ("ObjectRemoved:Delete", "img/a")}
eventually(lambda: {(event["eventName"], event["s3"]["object"]["key"]) for event in events} == told)
[put] = [event for event in events if event["eventName"] == "ObjectCreated:Put"]
assert put["s3"]["object"]["size"] == 3 and put["opaqueData"] == "mine", put
assert put["s3"]["object"]["metadata"] == [{"key": "x-amz-meta-color", "val": "blue"}], put
assert put["userIdentity"]["principalId"] == "admin" and put["s3"]["configurationId"] == "images", put
s3.put_bucket_notification_configuration(Bucket="logged", NotificationConfiguration={})
sns.delete_topic(TopicArn=arn)
assert sns.list_topics()["Topics"] == []
hook.shutdown()

# The audit log.
bad = client("METER", "wrong", endpoint=more, retries={"max_attempts": 0})
assert code(bad.list_buckets) == "SignatureDoesNotMatch"
meter = client("METER", "secret", endpoint=more, retries={"max_attempts": 0})
assert code(meter.get_object, Bucket="logged", Key="other") == "AccessDenied"
assert admin("GET", "usage", operator, more, uid="slow")[0] == 200


def audited():
    with open(audit) as lines:
        return [json.loads(line) for line in lines]


eventually(lambda: len(audited()) >= 3)
kinds = {(line["kind"], line["user"], line["operation"], line["error_code"]) for line in audited()}
assert ("refused", "", "", "SignatureDoesNotMatch") in kinds, kinds
assert ("refused", "meter", "GetObject", "AccessDenied") in kinds, kinds
assert ("admin", "meter", "UsageShow", "") in kinds, kinds
nacre("user", "suspend", "--uid", "slow", "--audit-log", audit)
assert audited()[-1]["operation"] == "UserSuspend", audited()

s3.put_bucket_logging(Bucket="logged", BucketLoggingStatus={})
# Lines that were waiting may still come.
for name in ["logged", "logs"]:
    eventually(lambda: not failed(lambda: empty(s3, name)))

nacre("user", "rm", "--uid", "slow", "--purge-data")
nacre("user", "rm", "--uid", "meter")
