// Pieces of pages: elements, dialogs, messages, tables, plots.

// An element: `h("a", { href }, "text", child)`. Attributes that begin with `on` are handlers.
export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
  return node;
}

// A message, which screen readers read. Errors stay until they are closed.
export function say(message, isError = false) {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close message" }, "×");
  const line = h("p", { class: isError ? "message error" : "message" }, String(message), close);
  close.addEventListener("click", () => line.remove());
  document.getElementById(isError ? "errors" : "messages").append(line);
  if (!isError) setTimeout(() => line.remove(), 6000);
}

// Runs a handler, and says what went wrong.
export const doing = (action) => async (event) => {
  if (event) event.preventDefault();
  try {
    await action(event);
  } catch (error) {
    if (error.code !== "Cancelled") say(error.message, true);
  }
};

export const button = (label, action, attributes = {}) =>
  h("button", { type: "button", ...attributes, onclick: doing(action) }, label);

// A dialog with a form. Gives the values of its fields, or null if it was closed.
export function ask(title, fields, { confirm = "OK", danger = false, text } = {}) {
  return new Promise((resolve) => {
    const rows = fields.map((field) => {
      const { name, label, kind = "text", value = "", options, ...rest } = field;
      const id = `field-${name}`;
      let input;
      if (kind === "textarea") input = h("textarea", { id, name, rows: 14, spellcheck: "false", ...rest }, value);
      else if (kind === "select") {
        input = h("select", { id, name }, options.map(([key, shown]) =>
          h("option", { value: key, selected: key === value }, shown)));
      } else input = h("input", { id, name, type: kind, value, autocomplete: "off", ...rest });
      return h("p", { class: "field" }, h("label", { for: id }, label), input);
    });
    const form = h("form", { method: "dialog" },
      h("h2", {}, title), text ? h("p", {}, text) : null, rows,
      h("p", { class: "actions" },
        h("button", { type: "submit", value: "ok", class: danger ? "danger" : "primary" }, confirm),
        h("button", { type: "submit", value: "", formnovalidate: true }, "Cancel")));
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      const values = dialog.returnValue === "ok" ? Object.fromEntries(new FormData(form)) : null;
      dialog.remove();
      resolve(values);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const sure = async (title, text, confirm) => (await ask(title, [], { text, confirm, danger: true })) !== null;

export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) =>
      (i === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell)))))));
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function size(bytes) {
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}
export const when = (text) => (text ? new Date(text).toLocaleString() : "");
export function age(text) {
  const minutes = Math.max(0, Math.round((Date.now() - new Date(text)) / 60000));
  if (minutes < 60) return `${minutes} min`;
  return minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

// Bars with their values, as a picture that can be read as a list as well.
export function bars(title, lines, show) {
  const most = Math.max(1, ...lines.map(([, value]) => value));
  return h("figure", { class: "bars" }, h("figcaption", {}, title),
    h("ul", {}, lines.map(([name, value]) => {
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.inlineSize = `${(100 * value) / most}%`;
      return h("li", {}, h("span", { class: "name" }, name), bar, h("span", { class: "value" }, show(value)));
    })));
}
