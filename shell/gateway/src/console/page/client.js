// The gateway's interfaces, with the keys of the user that signed in.

import { encode, encodePath, presigned, queryOf, signed } from "./sign.js";

export class Refused extends Error {
  constructor(status, code, message) {
    super(message || code || `the gateway answered ${status}`);
    this.status = status;
    this.code = code;
  }
}

const first = (node, name) => Array.from(node.children).find((child) => child.localName === name);
// The text of an element below, by its names; undefined if it is not there.
export function textOf(node, ...names) {
  for (const name of names) {
    node = node && first(node, name);
  }
  return node ? node.textContent : undefined;
}
export const allOf = (node, name) => Array.from(node.children).filter((child) => child.localName === name);
export const escapeXml = (value) =>
  String(value).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

export class Client {
  constructor(keys) {
    this.keys = keys;
    this.host = location.host;
  }

  pathOf(bucket, key) {
    if (!bucket) return "/";
    return `/${encode(bucket)}` + (key === undefined ? "" : `/${encodePath(key)}`);
  }

  // Sends a request; gives status, headers and text. `progress` is told of bytes that were sent.
  send(method, path, { query = {}, headers = {}, body, progress, signal } = {}) {
    const request = { method, host: this.host, path, query, headers };
    const url = path + (Object.keys(query).length ? `?${queryOf(query)}` : "");
    return new Promise((resolve, reject) => {
      const http = new XMLHttpRequest();
      http.open(method, url);
      for (const [name, value] of Object.entries(signed(this.keys, request))) http.setRequestHeader(name, value);
      http.onload = () => {
        if (http.status < 400) {
          resolve({ status: http.status, header: (name) => http.getResponseHeader(name), text: http.responseText });
        } else {
          reject(refusalOf(http));
        }
      };
      http.onerror = () => reject(new Refused(0, "", "the gateway does not answer"));
      http.onabort = () => reject(new Refused(0, "Cancelled", "cancelled"));
      if (progress) http.upload.onprogress = (event) => progress(event.loaded, event.total);
      if (signal) signal.addEventListener("abort", () => http.abort());
      http.send(body === undefined ? null : body);
    });
  }

  async xml(method, path, options) {
    const answer = await this.send(method, path, options);
    return answer.text ? new DOMParser().parseFromString(answer.text, "application/xml").documentElement : null;
  }

  async buckets() {
    const root = await this.xml("GET", "/");
    const list = first(root, "Buckets");
    return (list ? allOf(list, "Bucket") : []).map((node) => ({
      name: textOf(node, "Name"), created: textOf(node, "CreationDate"),
    }));
  }

  // The id under which the user owns buckets.
  async owner() {
    return textOf(await this.xml("GET", "/"), "Owner", "ID");
  }

  // Requests by hour and bucket: of one owner of buckets, or of all.
  usageLog(query) {
    return this.admin("GET", "usage", { "show-summary": "false", ...query });
  }

  async usage(bucket) {
    const answer = await this.send("HEAD", this.pathOf(bucket), { query: { "read-stats": "true" } });
    return {
      objects: Number(answer.header("x-rgw-object-count")), bytes: Number(answer.header("x-rgw-bytes-used")),
    };
  }

  // A page of objects and folders below a prefix.
  async objects(bucket, prefix, token) {
    const query = { "list-type": 2, delimiter: "/", prefix, "max-keys": 200, "continuation-token": token };
    const root = await this.xml("GET", this.pathOf(bucket), { query });
    return {
      folders: allOf(root, "CommonPrefixes").map((node) => textOf(node, "Prefix")),
      objects: allOf(root, "Contents").map((node) => ({
        key: textOf(node, "Key"), size: Number(textOf(node, "Size")), modified: textOf(node, "LastModified"),
        etag: textOf(node, "ETag"),
      })),
      next: textOf(root, "NextContinuationToken"),
    };
  }

  async versions(bucket, key) {
    const query = { versions: "", prefix: key, "max-keys": 1000 };
    const root = await this.xml("GET", this.pathOf(bucket), { query });
    const nodes = Array.from(root.children).filter((node) => ["Version", "DeleteMarker"].includes(node.localName));
    return nodes.filter((node) => textOf(node, "Key") === key).map((node) => ({
      id: textOf(node, "VersionId"), isLatest: textOf(node, "IsLatest") === "true",
      isMarker: node.localName === "DeleteMarker", modified: textOf(node, "LastModified"),
      size: Number(textOf(node, "Size") || 0),
    }));
  }

  async uploads(bucket) {
    const root = await this.xml("GET", this.pathOf(bucket), { query: { uploads: "" } });
    return allOf(root, "Upload").map((node) => ({
      key: textOf(node, "Key"), id: textOf(node, "UploadId"), begun: textOf(node, "Initiated"),
      owner: textOf(node, "Initiator", "ID"),
    }));
  }

  link(bucket, key, seconds, version) {
    const query = version ? { versionId: version } : {};
    const place = { origin: location.origin, host: this.host, path: this.pathOf(bucket, key), query };
    return presigned(this.keys, place, seconds);
  }

  // The Admin Ops API, for users with capabilities.
  async admin(method, path, query = {}) {
    const answer = await this.send(method, `/admin/${path}`, { query: { format: "json", ...query } });
    return answer.text ? JSON.parse(answer.text) : null;
  }
}

// What to tell people, where the gateway's own words are for programs.
const SENTENCES = {
  AccessDenied: "You may not do this: neither a policy nor a list allows it.",
  BucketNotEmpty: "The bucket is not empty.",
  InvalidAccessKeyId: "There is no such access key.",
  RequestTimeTooSkewed: "The clock of this computer differs too much from that of the gateway.",
  SignatureDoesNotMatch: "The secret key is not that of the access key.",
};

function refusalOf(http) {
  const type = http.getResponseHeader("content-type") || "";
  if (type.includes("json")) {
    try {
      const said = JSON.parse(http.responseText);
      return new Refused(http.status, said.Code, said.Message || said.Code);
    } catch { /* The answer of a proxy. */ }
  }
  if (type.includes("xml")) {
    const root = new DOMParser().parseFromString(http.responseText, "application/xml").documentElement;
    const code = textOf(root, "Code");
    return new Refused(http.status, code, SENTENCES[code] || textOf(root, "Message"));
  }
  const meaning = { 403: "Access Denied", 404: "it does not exist" };
  return new Refused(http.status, "", meaning[http.status]);
}
