// What is stored, and what was asked for over time.

import { plot } from "./plot.js";
import { bars, fill, h, size } from "./ui.js";

const BUCKETS_MAX = 200;
const HOUR = 3600, DAY = 24 * HOUR;
const SPANS = {
  day: { label: "The last 24 hours", unit: HOUR, count: 24 },
  month: { label: "The last 30 days", unit: DAY, count: 30 },
};
const number = (value) => value.toLocaleString();

export async function usagePage(client) {
  const buckets = (await client.buckets()).slice(0, BUCKETS_MAX);
  const lines = [];
  for (const { name } of buckets) lines.push([name, await client.usage(name)]);
  lines.sort(([, a], [, b]) => b.bytes - a.bytes);
  const total = lines.reduce((sum, [, usage]) => sum + usage.bytes, 0);
  const count = lines.reduce((sum, [, usage]) => sum + usage.objects, 0);
  return [h("h1", {}, "Usage"),
    h("p", {}, `${size(total)} in ${number(count)} objects and ${lines.length} buckets, all versions included.`),
    lines.length ? bars("Bytes by bucket", lines.map(([name, usage]) => [name, usage.bytes]), size) : null,
    lines.length ? bars("Objects by bucket", lines.map(([name, usage]) => [name, usage.objects]), number) : null,
    ...(await requests(client))];
}

// Requests and bytes over time, of the user's own buckets or, for those who may see it, of all.
async function requests(client) {
  const seesAll = await client.usageLog({ end: "1970-01-01" }).then(() => true, () => false);
  const place = h("div", { "aria-live": "polite" });
  const choice = (name, label, options) => h("p", { class: "field" }, h("label", { for: name }, label),
    h("select", { id: name, name, onchange: () => draw() }, options.map(([value, text]) => h("option", { value }, text))));
  const form = h("form", { class: "toolbar choices" },
    choice("span", "Time", Object.entries(SPANS).map(([value, { label }]) => [value, label])),
    seesAll ? choice("of", "Buckets", [["own", "My buckets"], ["all", "Buckets of all users"]]) : null);
  let latest = 0;
  const draw = async () => {
    const now = ++latest;
    const given = Object.fromEntries(new FormData(form));
    const content = await series(client, SPANS[given.span], given.of === "all")
      .catch((error) => h("p", { class: "hint" }, `Requests cannot be shown: ${error.message}`));
    if (now === latest) fill(place, content);
  };
  await draw();
  return [h("h2", {}, "Requests over time"), form, place];
}

async function series(client, { unit, count }, ofAll) {
  const end = Math.floor(Date.now() / 1000 / unit) * unit + unit;
  const begin = end - count * unit;
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  const uid = ofAll ? undefined : await client.owner();
  const { entries } = await client.usageLog({ uid, start: time(begin), end: time(end) });
  const found = { ops: [], bytes_received: [], bytes_sent: [] };
  for (const values of Object.values(found)) values.push(...Array(count).fill(0));
  for (const { epoch, categories } of entries.flatMap(({ buckets }) => buckets)) {
    const at = Math.floor((epoch - begin) / unit);
    if (at < 0 || at >= count) continue;
    for (const category of categories) for (const name of Object.keys(found)) found[name][at] += category[name];
  }
  const labels = Array.from({ length: count }, (_, i) => {
    const at = new Date((begin + i * unit) * 1000);
    return unit === DAY ? at.toISOString().slice(5, 10) : at.toISOString().slice(11, 16);
  });
  const each = unit === DAY ? "day" : "hour";
  const axis = (i) => (count - 1 - i) % (unit === DAY ? 5 : 4) === 0;
  return [h("p", { class: "hint" }, "Times are UTC. The log counts requests for buckets, by the hour."),
    plot(`Requests by ${each}`, labels, [{ name: "Requests", values: found.ops, className: "one" }], { show: number, axis }),
    plot(`Bytes by ${each}`, labels, [{ name: "Received", values: found.bytes_received, className: "one" },
      { name: "Sent", values: found.bytes_sent, className: "two" }], { show: size, base: 1024, axis })];
}
