// For administrators: users, keys and quotas.

import { reload } from "./objects.js";
import { ask, button, h, say, size, sure, table } from "./ui.js";

export async function usersPage(client) {
  const { keys } = await client.admin("GET", "user", { list: "" });
  const make = async () => {
    const given = await ask("New user", [
      { name: "uid", label: "Id", required: true }, { name: "name", label: "Name", required: true },
      { name: "email", label: "Address", kind: "email" },
    ], { confirm: "Create" });
    if (!given) return;
    await client.admin("PUT", "user", { uid: given.uid, "display-name": given.name, email: given.email || undefined });
    location.hash = `#/users/${encodeURIComponent(given.uid)}`;
  };
  const rows = keys.map((id) => [h("a", { href: `#/users/${encodeURIComponent(id)}` }, id)]);
  return [h("h1", {}, "Users"), h("div", { class: "toolbar" }, button("New user", make, { class: "primary" })),
    table("All users", ["Id"], rows, "There is no user.")];
}

const limit = (quota) => {
  if (!quota.enabled) return "none";
  const parts = [quota.max_size >= 0 ? size(quota.max_size) : null, quota.max_objects >= 0 ? `${quota.max_objects} objects` : null];
  return parts.filter(Boolean).join(", ") || "none";
};

export async function userPage(client, uid) {
  const user = await client.admin("GET", "user", { uid, stats: "true" });
  const set = async (query, said) => {
    await client.admin("POST", "user", { uid, ...query });
    say(said);
    reload();
  };
  const setQuota = (type, quota) => async () => {
    const given = await ask(`Quota of ${type === "user" ? "all buckets" : "each bucket"}`, [
      { name: "size", label: "MiB; empty for no limit", kind: "number", min: 0, value: quota.max_size >= 0 ? Math.ceil(quota.max_size / 1048576) : "" },
      { name: "objects", label: "Objects; empty for no limit", kind: "number", min: 0, value: quota.max_objects >= 0 ? quota.max_objects : "" },
    ], { confirm: "Save" });
    if (!given) return;
    const bytes = given.size === "" ? -1 : Number(given.size) * 1048576;
    const objects = given.objects === "" ? -1 : Number(given.objects);
    await client.admin("PUT", "user", { quota: "", uid, "quota-type": type, "max-size": bytes, "max-objects": objects,
      enabled: String(bytes >= 0 || objects >= 0) });
    say("The quota was saved.");
    reload();
  };
  const keys = user.keys.map((key) => [key.access_key, key.user, [
    button("Show the secret", () => ask("Secret key", [{ name: "secret", label: key.access_key, value: key.secret_key, readonly: true }])),
    button("Remove", async () => {
      if (!await sure("Remove the key?", `${key.access_key}: programs that use it are refused at once.`, "Remove")) return;
      await client.admin("DELETE", "user", { key: "", uid, "access-key": key.access_key });
      reload();
    }, { "aria-label": `Remove ${key.access_key}` })]]);
  return [h("h1", {}, h("a", { href: "#/users" }, "Users"), ` / ${uid}`),
    h("div", { class: "toolbar" },
      user.suspended ? button("Enable", () => set({ suspended: "false" }, "The user is enabled."))
        : button("Suspend", () => set({ suspended: "true" }, "The user is suspended.")),
      button("New key", async () => {
        await client.admin("PUT", "user", { key: "", uid, "generate-key": "true" });
        say("The user has a new key.");
        reload();
      }),
      button("Delete user", async () => {
        if (!await sure(`Delete user ${uid}?`, "The user must have no bucket.", "Delete")) return;
        await client.admin("DELETE", "user", { uid });
        location.hash = "#/users";
      }, { class: "danger" })),
    table("Properties", ["Name", "Value"], [
      ["Name", user.display_name], ["Address", user.email], ["State", user.suspended ? "suspended" : "enabled"],
      ["Usage", user.stats ? `${size(user.stats.size)} in ${user.stats.num_objects} objects` : ""],
      ["Quota of all buckets", [limit(user.user_quota), " ", button("Change", setQuota("user", user.user_quota))]],
      ["Quota of each bucket", [limit(user.bucket_quota), " ", button("Change", setQuota("bucket", user.bucket_quota))]],
    ], ""),
    h("h2", {}, "Keys"), table("Access keys", ["Access key", "Of", "Actions"], keys, "The user has no key.")];
}
