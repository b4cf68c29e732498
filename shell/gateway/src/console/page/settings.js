// What is set on a bucket.

import { editTags, readTags, reload, tagsXml } from "./objects.js";
import { ask, button, h, say, sure } from "./ui.js";

const to = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

// A setting as XML or JSON that is edited as text. `missing` are codes that say that there is none.
async function read(client, path, query, missing) {
  return client.send("GET", path, { query }).then((answer) => answer.text, (error) => {
    if (missing.includes(error.code)) return "";
    throw error;
  });
}

function pretty(text) {
  if (text.trimStart().startsWith("{")) return JSON.stringify(JSON.parse(text), null, 2);
  return text.replace(/^<\?xml[^>]*\?>\s*/, "").replace(/ xmlns="[^"]*"/, "").replace(/></g, ">\n<");
}

const TEXTS = [
  ["Policy", "policy", ["NoSuchBucketPolicy"], "JSON in the language of IAM"],
  ["Lifecycle", "lifecycle", ["NoSuchLifecycleConfiguration"], "XML: <LifecycleConfiguration>"],
  ["CORS", "cors", ["NoSuchCORSConfiguration"], "XML: <CORSConfiguration>"],
];

const EXAMPLES = {
  policy: (bucket) => JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Principal: "*",
    Action: "s3:GetObject", Resource: `arn:aws:s3:::${bucket}/*` }] }, null, 2),
  lifecycle: () => "<LifecycleConfiguration>\n<Rule>\n<ID>old uploads</ID>\n<Status>Enabled</Status>\n<Filter>\n<Prefix></Prefix>\n" +
    "</Filter>\n<AbortIncompleteMultipartUpload>\n<DaysAfterInitiation>7</DaysAfterInitiation>\n" +
    "</AbortIncompleteMultipartUpload>\n</Rule>\n</LifecycleConfiguration>",
  cors: () => "<CORSConfiguration>\n<CORSRule>\n<AllowedOrigin>*</AllowedOrigin>\n<AllowedMethod>GET</AllowedMethod>\n" +
    "</CORSRule>\n</CORSConfiguration>",
};

export async function settingsPage(client, bucket) {
  const path = client.pathOf(bucket);
  const versioning = await client.xml("GET", path, { query: { versioning: "" } });
  const status = versioning.getElementsByTagNameNS("*", "Status")[0];
  const state = status ? status.textContent : "Off";
  const setVersioning = (value) => async () => {
    const body = `<VersioningConfiguration><Status>${value}</Status></VersioningConfiguration>`;
    await client.send("PUT", path, { query: { versioning: "" }, body });
    say(`Versioning is ${value.toLowerCase()}.`);
    reload();
  };
  const parts = [h("h1", {}, "Settings of ", h("a", { href: to("b", bucket) }, bucket)),
    h("h2", {}, "Versions"), h("p", {}, state === "Enabled" ? "Every version of an object is kept."
      : state === "Suspended" ? "Older versions are kept, new ones are not." : "Objects are replaced and deleted at once."),
    state === "Enabled" ? button("Suspend", setVersioning("Suspended")) : button("Keep versions", setVersioning("Enabled"))];
  const pairs = await readTags(client, path);
  parts.push(h("h2", {}, "Tags"), h("p", {}, pairs.length ? pairs.map((pair) => pair.join("=")).join(", ") : "None."),
    button("Edit tags", async () => {
      await editTags("Tags of the bucket", async () => pairs, (given) =>
        (given.length ? client.send("PUT", path, { query: { tagging: "" }, body: tagsXml(given) })
          : client.send("DELETE", path, { query: { tagging: "" } })));
      reload();
    }));
  for (const [title, name, missing, label] of TEXTS) {
    const text = await read(client, path, { [name]: "" }, missing);
    parts.push(h("h2", {}, title), text ? h("pre", { tabindex: 0 }, pretty(text)) : h("p", {}, "None."),
      h("div", { class: "toolbar" },
        button(text ? `Edit ${title}` : `Add ${title}`, async () => {
          const value = text ? pretty(text) : EXAMPLES[name](bucket);
          const given = await ask(title, [{ name: "text", label, kind: "textarea", value }], { confirm: "Save" });
          if (!given) return;
          const body = name === "policy" ? given.text : given.text.replace(/>\s+</g, "><").trim();
          await client.send("PUT", path, { query: { [name]: "" }, body });
          say(`${title} was saved.`);
          reload();
        }),
        text ? button(`Remove ${title}`, async () => {
          if (!await sure(`Remove ${title}?`, bucket, "Remove")) return;
          await client.send("DELETE", path, { query: { [name]: "" } });
          reload();
        }) : null));
  }
  return parts;
}
