// Signatures of requests (AWS version 4), without WebCrypto: browsers have that only over TLS and on localhost.

const K = new Uint32Array(64);
const START = new Uint32Array(8);

// The constants of SHA-256: fractional parts of the roots of the first primes.
(function fill() {
  let found = 0;
  for (let n = 2; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    const fraction = (root) => Math.floor((root - Math.floor(root)) * 0x100000000) >>> 0;
    if (found < 8) START[found] = fraction(Math.sqrt(n));
    K[found++] = fraction(Math.cbrt(n));
  }
})();

const text = new TextEncoder();
const bytesOf = (data) => (typeof data === "string" ? text.encode(data) : data);

export function sha256(data) {
  const message = bytesOf(data);
  const padded = new Uint8Array((((message.length + 8) >> 6) + 1) << 6);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(message.length / 0x20000000));
  view.setUint32(padded.length - 4, (message.length << 3) >>> 0);
  const state = START.slice();
  const w = new Uint32Array(64);
  const rotate = (x, n) => (x >>> n) | (x << (32 - n));
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(block + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15], b = w[i - 2];
      const s0 = rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3);
      const s1 = rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => { state[i] += value; });
  }
  const digest = new Uint8Array(32);
  const out = new DataView(digest.buffer);
  state.forEach((value, i) => out.setUint32(4 * i, value));
  return digest;
}

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function hmac(key, data) {
  const block = new Uint8Array(64);
  const short = bytesOf(key);
  block.set(short.length > 64 ? sha256(short) : short);
  const join = (pad, rest) => {
    const joined = new Uint8Array(64 + rest.length);
    block.forEach((byte, i) => { joined[i] = byte ^ pad; });
    joined.set(rest, 64);
    return joined;
  };
  return sha256(join(0x5c, sha256(join(0x36, bytesOf(data)))));
}

// As signatures want it: RFC 3986, slashes of paths stay.
export const encode = (value) =>
  encodeURIComponent(value).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
export const encodePath = (path) => path.split("/").map(encode).join("/");

export function queryOf(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const encoded = pairs.map(([name, value]) => [encode(name), encode(String(value))]);
  return encoded.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map((pair) => pair.join("=")).join("&");
}

const stampOf = (date) => date.toISOString().replace(/[-:]|\.\d{3}/g, "");

function signatureOf({ secret, region }, stamp, scope, canonical) {
  const toSign = ["AWS4-HMAC-SHA256", stamp, scope, hex(sha256(canonical))].join("\n");
  const key = [region, "s3", "aws4_request"].reduce(hmac, hmac("AWS4" + secret, stamp.slice(0, 8)));
  return hex(hmac(key, toSign));
}

// The headers that sign a request. The body is not covered: it travels to the same server.
export function signed(keys, { method, host, path, query, headers }, date = new Date()) {
  const stamp = stampOf(date);
  const scope = `${stamp.slice(0, 8)}/${keys.region}/s3/aws4_request`;
  const all = { ...headers, host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": stamp };
  if (keys.token) all["x-amz-security-token"] = keys.token;
  const names = Object.keys(all).map((name) => name.toLowerCase()).sort();
  const byName = Object.fromEntries(Object.entries(all).map(([name, value]) => [name.toLowerCase(), String(value).trim()]));
  const lines = names.map((name) => `${name}:${byName[name]}\n`).join("");
  const canonical = [method, path, queryOf(query), lines, names.join(";"), "UNSIGNED-PAYLOAD"].join("\n");
  const signature = signatureOf(keys, stamp, scope, canonical);
  const credential = `Credential=${keys.access}/${scope}`;
  delete byName.host;
  return {
    ...byName,
    authorization: `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=${names.join(";")}, Signature=${signature}`,
  };
}

// A URL that anyone may use for a time.
export function presigned(keys, { origin, host, path, query }, seconds, date = new Date()) {
  const stamp = stampOf(date);
  const scope = `${stamp.slice(0, 8)}/${keys.region}/s3/aws4_request`;
  const all = {
    ...query,
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": `${keys.access}/${scope}`,
    "X-Amz-Date": stamp,
    "X-Amz-Expires": seconds,
    "X-Amz-SignedHeaders": "host",
  };
  const canonical = ["GET", path, queryOf(all), `host:${host}\n`, "host", "UNSIGNED-PAYLOAD"].join("\n");
  return `${origin}${path}?${queryOf(all)}&X-Amz-Signature=${signatureOf(keys, stamp, scope, canonical)}`;
}
