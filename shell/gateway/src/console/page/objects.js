// Buckets, and the objects in them.

import { escapeXml } from "./client.js";
import { age, ask, button, doing, fill, h, say, size, sure, table, when } from "./ui.js";

export const reload = () => document.dispatchEvent(new Event("nacre-reload"));
const to = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

// Larger files are sent in parts.
const PART = 16 << 20;
const PREVIEW_MAX = 256 << 10;

export async function bucketsPage(client) {
  const buckets = await client.buckets();
  const make = async () => {
    const given = await ask("New bucket", [{ name: "name", label: "Name", required: true, minlength: 3, maxlength: 63 }],
      { confirm: "Create" });
    if (!given) return;
    await client.send("PUT", client.pathOf(given.name));
    say(`Bucket ${given.name} was created.`);
    reload();
  };
  const remove = (name) => async () => {
    if (!await sure(`Delete bucket ${name}?`, "It must be empty.", "Delete")) return;
    await client.send("DELETE", client.pathOf(name));
    say(`Bucket ${name} was deleted.`);
    reload();
  };
  const rows = buckets.map(({ name, created }) => [
    h("a", { href: to("b", name) }, name), when(created),
    [h("a", { href: to("settings", name) }, "Settings"), " ", button("Delete", remove(name), { "aria-label": `Delete ${name}` })],
  ]);
  return [h("h1", {}, "Buckets"), h("div", { class: "toolbar" }, button("New bucket", make, { class: "primary" })),
    table("Your buckets", ["Name", "Created", "Actions"], rows, "You have no bucket yet.")];
}

const crumbs = (bucket, prefix) => {
  const links = [h("a", { href: to("b", bucket) }, bucket)];
  let path = "";
  for (const part of prefix.split("/").slice(0, -1)) {
    path += `${part}/`;
    links.push(" / ", h("a", { href: to("b", bucket, path) }, part || "∅"));
  }
  return h("h1", {}, links);
};

export async function bucketPage(client, bucket, prefix) {
  const body = h("div", {});
  const shown = { folders: [], objects: [], next: undefined };
  const draw = () => {
    const folders = shown.folders.map((folder) => [
      h("a", { href: to("b", bucket, folder) }, folder.slice(prefix.length)), "", "", "",
    ]);
    const objects = shown.objects.map((object) => [
      h("a", { href: to("o", bucket, object.key) }, object.key.slice(prefix.length) || "(the folder itself)"),
      size(object.size), when(object.modified),
      button("Delete", remove(object.key), { "aria-label": `Delete ${object.key}` }),
    ]);
    fill(body, table(`Objects in ${bucket}/${prefix}`, ["Name", "Size", "Changed", "Actions"], [...folders, ...objects],
      "There is nothing here."), shown.next ? button("Show more", more) : null);
  };
  const more = async () => {
    const page = await client.objects(bucket, prefix, shown.next);
    shown.folders.push(...page.folders);
    shown.objects.push(...page.objects);
    shown.next = page.next;
    draw();
  };
  const remove = (key) => async () => {
    if (!await sure("Delete object?", key, "Delete")) return;
    await client.send("DELETE", client.pathOf(bucket, key));
    say(`${key} was deleted.`);
    shown.objects = shown.objects.filter((object) => object.key !== key);
    draw();
  };
  await more();
  return [crumbs(bucket, prefix), h("div", { class: "toolbar" },
    h("a", { href: to("settings", bucket) }, "Settings"), h("a", { href: to("uploads", bucket) }, "Open uploads")),
  dropPlace(client, bucket, prefix), body];
}

function dropPlace(client, bucket, prefix) {
  const list = h("div", { "aria-live": "polite" });
  const picker = h("input", { type: "file", multiple: true, id: "files", onchange: () => start([...picker.files]) });
  const start = async (files) => {
    const results = await Promise.all(files.map((file) => sendFile(client, bucket, prefix + file.name, file, list)));
    picker.value = "";
    if (results.some((done) => done)) reload();
  };
  const place = h("div", { class: "drop" }, h("label", { for: "files" }, "Drop files here, or choose them"), picker, list);
  place.addEventListener("dragover", (event) => { event.preventDefault(); place.classList.add("over"); });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    start([...event.dataTransfer.files]);
  });
  return place;
}

// Sends a file with a bar of its own; true if it was sent.
async function sendFile(client, bucket, key, file, list) {
  const stop = new AbortController();
  const bar = h("progress", { max: 1, value: 0, "aria-label": `Upload of ${key}` });
  const share = h("span", {}, "0 %");
  const line = h("div", { class: "uploading" }, h("span", {}, key), bar, share,
    button("Cancel", () => stop.abort(), { "aria-label": `Cancel ${key}` }));
  list.append(line);
  const progress = (sent) => {
    bar.value = file.size ? sent / file.size : 1;
    share.textContent = `${Math.round(100 * bar.value)} %`;
  };
  const path = client.pathOf(bucket, key);
  const headers = { "content-type": file.type || "application/octet-stream" };
  try {
    if (file.size <= PART) await client.send("PUT", path, { headers, body: file, progress, signal: stop.signal });
    else await sendParts(client, path, headers, file, progress, stop.signal);
    say(`${key} was uploaded.`);
    return true;
  } catch (error) {
    if (error.code !== "Cancelled") say(`${key}: ${error.message}`, true);
    return false;
  } finally {
    line.remove();
  }
}

async function sendParts(client, path, headers, file, progress, signal) {
  const begun = await client.xml("POST", path, { query: { uploads: "" }, headers });
  const uploadId = begun.getElementsByTagNameNS("*", "UploadId")[0].textContent;
  const size = Math.max(PART, Math.ceil(file.size / 10000));
  try {
    const parts = [];
    for (let start = 0; start < file.size; start += size) {
      const partNumber = parts.length + 1;
      const answer = await client.send("PUT", path, {
        query: { partNumber, uploadId }, body: file.slice(start, start + size), signal,
        progress: (sent) => progress(start + sent),
      });
      parts.push(`<Part><PartNumber>${partNumber}</PartNumber><ETag>${escapeXml(answer.header("etag"))}</ETag></Part>`);
    }
    const body = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
    await client.send("POST", path, { query: { uploadId }, body });
  } catch (error) {
    await client.send("DELETE", path, { query: { uploadId } }).catch(() => {});
    throw error;
  }
}

export async function objectPage(client, bucket, key) {
  const path = client.pathOf(bucket, key);
  const versions = await client.versions(bucket, key).catch(() => []);
  const head = await client.send("HEAD", path).catch((error) => {
    if (error.status === 404 && versions.length > 0) return null;
    throw error;
  });
  const folder = key.slice(0, key.lastIndexOf("/") + 1);
  const parts = [h("h1", {}, h("a", { href: to("b", bucket, folder) }, `${bucket}/${folder}`), key.slice(folder.length))];
  if (head) {
    const type = head.header("content-type") || "";
    const length = Number(head.header("content-length"));
    parts.push(h("div", { class: "toolbar" },
      h("a", { href: client.link(bucket, key, 300), download: key.split("/").pop() }, "Download"),
      button("Share", () => share(client, bucket, key)),
      button("Tags", () => tags(client, path)),
      button("Delete", async () => {
        if (!await sure("Delete object?", key, "Delete")) return;
        await client.send("DELETE", path);
        location.hash = to("b", bucket, folder);
      }, { class: "danger" })));
    parts.push(table("Properties", ["Name", "Value"], [
      ["Size", size(length)], ["Type", type], ["Changed", when(head.header("last-modified"))],
      ["Entity tag", head.header("etag")],
      ...["x-amz-version-id", "x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date", "x-amz-object-lock-legal-hold"]
        .filter((name) => head.header(name)).map((name) => [name, head.header(name)]),
    ], ""));
    parts.push(await preview(client, bucket, key, type, length));
  } else {
    parts.push(h("p", {}, "The object was deleted. Older versions are kept."));
  }
  if (versions.length > 1 || versions.some((version) => version.id !== "null")) {
    const rows = versions.map((version) => [
      `${version.id}${version.isLatest ? " (current)" : ""}`, when(version.modified),
      version.isMarker ? "deleted" : size(version.size),
      [version.isMarker ? null : h("a", { href: client.link(bucket, key, 300, version.id) }, "Open"), " ",
        version.isMarker || version.isLatest ? null : button("Restore", doing(async () => {
          const source = `${client.pathOf(bucket, key)}?versionId=${encodeURIComponent(version.id)}`;
          await client.send("PUT", path, { headers: { "x-amz-copy-source": source } });
          say("The version is the current one again.");
          reload();
        })), " ",
        button("Delete for good", async () => {
          if (!await sure("Delete this version for good?", version.id, "Delete")) return;
          await client.send("DELETE", path, { query: { versionId: version.id } });
          reload();
        })],
    ]);
    parts.push(h("h2", {}, "Versions"), table("Newest first", ["Version", "Changed", "Size", "Actions"], rows, ""));
  }
  return parts;
}

async function share(client, bucket, key) {
  const given = await ask("Share a link", [{
    name: "seconds", label: "Good for", kind: "select", value: "86400",
    options: [["3600", "an hour"], ["86400", "a day"], ["604800", "a week"]],
  }], { confirm: "Make the link", text: "Anyone with the link can read the object, also without signing in." });
  if (!given) return;
  const link = client.link(bucket, key, Number(given.seconds));
  await ask("The link", [{ name: "link", label: "Copy it", value: link, readonly: true, onfocus: (event) => event.target.select() }]);
}

export async function editTags(title, read, write) {
  const before = await read();
  const lines = before.map(([name, value]) => `${name}=${value}`).join("\n");
  const given = await ask(title, [{ name: "tags", label: "One NAME=VALUE on each line", kind: "textarea", value: lines }],
    { confirm: "Save" });
  if (!given) return;
  const pairs = given.tags.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  await write(pairs);
  say("The tags were saved.");
}

export const tagsXml = (pairs) => `<Tagging><TagSet>${pairs.map(([name, value]) =>
  `<Tag><Key>${escapeXml(name)}</Key><Value>${escapeXml(value)}</Value></Tag>`).join("")}</TagSet></Tagging>`;

export async function readTags(client, path) {
  const root = await client.xml("GET", path, { query: { tagging: "" } }).catch((error) => {
    if (error.code === "NoSuchTagSet") return null;
    throw error;
  });
  const of = (tag, name) => tag.getElementsByTagNameNS("*", name)[0].textContent;
  return root ? [...root.getElementsByTagNameNS("*", "Tag")].map((tag) => [of(tag, "Key"), of(tag, "Value")]) : [];
}

const tags = (client, path) => editTags("Tags", () => readTags(client, path), (pairs) =>
  (pairs.length ? client.send("PUT", path, { query: { tagging: "" }, body: tagsXml(pairs) })
    : client.send("DELETE", path, { query: { tagging: "" } })));

async function preview(client, bucket, key, type, length) {
  const isText = /^(text\/|application\/(json|xml|javascript|x-sh|yaml))/.test(type) || /\.(txt|md|log|csv|json|ya?ml|toml)$/i.test(key);
  if (/^image\/(png|jpeg|gif|webp|avif)/.test(type)) {
    return h("div", { class: "preview" }, h("h2", {}, "Preview"), h("img", { src: client.link(bucket, key, 300), alt: key }));
  }
  if (!isText || length === 0) return null;
  const headers = length > PREVIEW_MAX ? { range: `bytes=0-${PREVIEW_MAX - 1}` } : {};
  const answer = await client.send("GET", client.pathOf(bucket, key), { headers });
  return h("div", { class: "preview" }, h("h2", {}, length > PREVIEW_MAX ? "The first 256 KiB" : "Preview"),
    h("pre", { tabindex: 0 }, answer.text));
}

export async function uploadsPage(client, bucket) {
  const uploads = await client.uploads(bucket);
  const rows = uploads.map(({ key, id, begun, owner }) => [key, age(begun), owner, button("Abort", async () => {
    await client.send("DELETE", client.pathOf(bucket, key), { query: { uploadId: id } });
    say(`The upload of ${key} was aborted, and its parts will be removed.`);
    reload();
  }, { "aria-label": `Abort ${key}` })]);
  return [h("h1", {}, "Open uploads in ", h("a", { href: to("b", bucket) }, bucket)),
    h("p", { class: "hint" }, "Parts of uploads that were never completed take space. A lifecycle rule can abort old ones."),
    table("Uploads in parts", ["Key", "Age", "By", "Actions"], rows, "No upload is open.")];
}
