"""Web identities: a provider of tokens over HTTPS, and sessions of a role for those whom it knows.

Arguments: the program, and the folder of the cluster. The environment has AWS_ENDPOINT_URL and the keys of
a user.
"""

import base64
import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import boto3
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError

from s3_client import client, code, commands

program, folder = sys.argv[1:]
endpoint = os.environ["AWS_ENDPOINT_URL"]
files = tempfile.TemporaryDirectory()
nacre = commands(program, folder)


def openssl(*words, data=None):
    return subprocess.run(["openssl", *words], check=True, input=data, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, cwd=files.name).stdout


def text_of(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# An authority, a certificate of it for the provider, and a key for tokens.
new = ["req", "-newkey", "rsa:2048", "-nodes"]
openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
openssl(*new, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=localhost")
with open(f"{files.name}/host.ext", "w") as extensions:
    extensions.write("subjectAltName=DNS:localhost\n")
signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "host.ext"]
openssl("x509", "-req", "-in", "host.csr", "-out", "host.pem", *signed)
with open(f"{files.name}/host.pem", "a") as chain, open(f"{files.name}/ca.pem") as authority:
    chain.write(authority.read())
openssl("genrsa", "-out", "token.key", "2048")
modulus = openssl("rsa", "-in", "token.key", "-noout", "-modulus").decode().strip().split("=")[1]
thumbprint = openssl("x509", "-in", "ca.pem", "-noout", "-fingerprint", "-sha1").decode()
thumbprint = thumbprint.strip().split("=")[1].replace(":", "")


class Provider(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {
            "/id/.well-known/openid-configuration": {"jwks_uri": f"{url}/keys"},
            "/id/keys": {"keys": [{"kty": "RSA", "use": "sig", "kid": "k", "e": "AQAB",
                                   "n": text_of(bytes.fromhex(modulus))}]},
        }
        body = json.dumps(answers[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(f"{files.name}/host.pem", f"{files.name}/host.key")
server.socket = tls.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
bare = f"localhost:{server.server_address[1]}/id"
url = f"https://{bare}"


def token(**changes):
    claims = {"iss": url, "sub": "anna", "aud": "app", "exp": int(time.time()) + 600, **changes}
    parts = [text_of(json.dumps(part).encode()) for part in [{"alg": "RS256", "kid": "k"}, claims]]
    message = ".".join(parts)
    return f"{message}.{text_of(openssl('dgst', '-sha256', '-sign', 'token.key', data=message.encode()))}"


def service(name, keys=(None, None), **config):
    return boto3.client(name, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys[0],
                        aws_secret_access_key=keys[1], config=Config(retries={"max_attempts": 1}, **config))


account = nacre("account", "create", "--account-name", "webs")["id"]
words = ["--display-name", "boss", "--account-id", account, "--account-root"]
made = nacre("user", "create", "--uid", "boss", *words)
boss = made["keys"][0]["access_key"], made["keys"][0]["secret_key"]
iam, bosses = service("iam", boss), client(*boss)
provider = iam.create_open_id_connect_provider(Url=url, ClientIDList=["app"], ThumbprintList=[thumbprint])
arn = provider["OpenIDConnectProviderArn"]
assert arn == f"arn:aws:iam::{account}:oidc-provider/{bare}", arn
assert iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)["ClientIDList"] == ["app"]
assert [p["Arn"] for p in iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]] == [arn]
trust = {
    "Effect": "Allow",
    "Principal": {"Federated": arn},
    "Action": "sts:AssumeRoleWithWebIdentity",
    "Condition": {"StringEquals": {f"{bare}:sub": "anna", f"{bare}:aud": "app"}},
}
trust = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
role = iam.create_role(RoleName="web", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
iam.attach_role_policy(RoleName="web", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
bosses.create_bucket(Bucket="webs")
bosses.put_object(Bucket="webs", Key="key", Body=b"body")

sts = service("sts", signature_version=UNSIGNED)


def take(token):
    return sts.assume_role_with_web_identity(RoleArn=role, RoleSessionName="test", WebIdentityToken=token)


taken = take(token())
assert taken["SubjectFromWebIdentityToken"] == "anna" and taken["Provider"] == arn, taken
keys = taken["Credentials"]
web = client(keys["AccessKeyId"], keys["SecretAccessKey"], token=keys["SessionToken"])
assert web.get_object(Bucket="webs", Key="key")["Body"].read() == b"body"
assert code(web.put_object, Bucket="webs", Key="key", Body=b"x") == "AccessDenied"
for changes, expected in [
    ({"sub": "bert"}, "AccessDenied"),
    ({"aud": "other"}, "InvalidIdentityToken"),
    ({"iss": "https://localhost/other"}, "InvalidIdentityToken"),
    ({"exp": int(time.time()) - 600}, "ExpiredTokenException"),
]:
    assert code(take, token=token(**changes)) == expected, changes
good = token()
assert code(take, token=good[:-8] + "AAAAAAAA") == "InvalidIdentityToken"

# A provider whose certificate is known neither by its authority nor by a thumbprint is not believed.
iam.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=arn, ThumbprintList=["0" * 40])
try:
    take(good)
    raise AssertionError("a token of an unknown server was accepted")
except ClientError as e:
    assert e.response["Error"]["Code"] in ["IDPCommunicationError", "IDPCommunicationErrorException"], e
iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
assert code(take, token=good) == "InvalidIdentityToken"

# What the data of the bucket belongs to.
bosses.put_object(Bucket="webs", Key="large", Body=b"x" * 100_000)
found = nacre("check", "--format", "json")
of_bucket = next(bucket for bucket in found["buckets"] if bucket["bucket"] == "webs")
assert of_bucket["in_index"] == {"count": 1, "bytes": 4}, of_bucket
assert of_bucket["in_data_pool"] == {"count": 1, "bytes": 100_000}, of_bucket
assert not found["missing"] and not found["orphan_names"] and not found["foreign_objects"], found
bosses.delete_object(Bucket="webs", Key="large")

iam.detach_role_policy(RoleName="web", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
iam.delete_role(RoleName="web")
bosses.delete_object(Bucket="webs", Key="key")
bosses.delete_bucket(Bucket="webs")
nacre("user", "rm", "--uid", "boss")
nacre("account", "rm", "--account-id", account)
server.shutdown()
