"""The console in a browser: console.py FOLDER. With CONSOLE_PICTURES, pictures of the pages go into that
folder."""

import os
import sys
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

folder = sys.argv[1]
endpoint = os.environ["AWS_ENDPOINT_URL"]
pictures = os.environ.get("CONSOLE_PICTURES")
options = webdriver.ChromeOptions()
for option in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"]:
    options.add_argument(option)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
# Pages are drawn again while this looks at them.
patience = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException])


def picture(name):
    if pictures:
        browser.save_screenshot(os.path.join(pictures, f"{name}.png"))


def find(selector):
    return patience.until(lambda b: b.find_element(By.CSS_SELECTOR, selector))


def named(label, tag="button"):
    """A button or link that is there, by its text."""
    path = f"//{tag}[normalize-space()='{label}']"
    visible = lambda b: (e for e in b.find_elements(By.XPATH, path) if e.is_displayed())
    return patience.until(lambda b: next(visible(b), None))


def press(find_it):
    patience.until(lambda _: find_it().click() or True)


def click(label, tag="button"):
    press(lambda: named(label, tag))


def shown(text):
    body = lambda: browser.find_element(By.TAG_NAME, "body").text
    try:
        patience.until(lambda _: text in body())
    except TimeoutException:
        raise AssertionError(f"{text!r} is not in {body()}") from None


# What is wrong with a page for those who do not see it, or see little contrast: names that are missing, and
# texts whose contrast is below 4.5.
FAULTS = """
const faults = [];
const visible = (node) => node.getClientRects().length > 0 && getComputedStyle(node).visibility === "visible";
for (const node of document.querySelectorAll("button, a, input, select, textarea, img, svg[role], dialog")) {
  if (!visible(node)) continue;
  const labels = [...(node.labels || [])].map((label) => label.textContent).join("");
  const own = ["INPUT", "SELECT", "TEXTAREA", "DIALOG"].includes(node.tagName) ? "" : node.textContent;
  const name = node.getAttribute("aria-label") || node.getAttribute("alt") || labels || own;
  if (!name.trim()) faults.push(`no name: ${node.outerHTML.slice(0, 120)}`);
}
if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
if (new Set(ids).size !== ids.length) faults.push("an id twice");
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const channels = (color) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const luminance = (color) => {
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = channels(color).map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (channels(color)[3] === 255) return color;
  }
  return "white";
};
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
for (const node of document.querySelectorAll("body *")) {
  const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!text || !visible(node) || node.tagName === "OPTION" || node.closest(".skip")) continue;
  const style = getComputedStyle(node);
  const found = contrast(node instanceof SVGElement ? style.fill : style.color, behind(node));
  if (found < 4.5) faults.push(`contrast ${found.toFixed(2)}: ${node.outerHTML.slice(0, 120)}`);
}
return [...new Set(faults)];
"""


def theme(name):
    browser.execute_script("const s = document.getElementById('theme'); s.value = arguments[0];"
                           "s.dispatchEvent(new Event('change'))", name)


def check_page(name):
    """Looks at a page in both themes."""
    for look in ["light", "dark"]:
        theme(look)
        faults = browser.execute_script(FAULTS)
        assert not faults, f"{name}, {look}: {faults}"
        picture(f"{name}-{look}")
    theme("")


def focused():
    return browser.execute_script("return document.activeElement.textContent || document.activeElement.name")


def field(name, value):
    element = find(f"[name={name}]")
    element.clear()
    element.send_keys(value)


try:
    browser.get(f"{endpoint}/_console/")
    field("access", os.environ["AWS_ACCESS_KEY_ID"])
    field("secret", "wrong")
    check_page("sign-in")
    click("Sign in")
    shown("The secret key is not that of the access key.")
    field("secret", os.environ["AWS_SECRET_ACCESS_KEY"])
    click("Sign in")
    shown("You have no bucket yet.")
    # By the keyboard alone: over the links to the content, and to the first button.
    keyboard = lambda *keys: ActionChains(browser).send_keys(*keys).perform()
    browser.execute_script("document.querySelector('a').focus()")
    assert focused() == "Skip to the content", focused()
    keyboard(Keys.ENTER)
    patience.until(lambda b: b.execute_script("return document.activeElement.id") == "main")
    keyboard(Keys.TAB)
    assert focused() == "New bucket", focused()
    keyboard(Keys.ENTER)
    patience.until(lambda _: focused() == "name")
    check_page("dialog")
    keyboard(Keys.ESCAPE)
    patience.until(lambda _: focused() == "New bucket")
    click("New bucket")
    field("name", "from-console")
    click("Create")
    shown("Bucket from-console was created.")
    click("from-console", "a")

    path = os.path.join(folder, "note.txt")
    with open(path, "w") as file:
        file.write("hello from a browser\n")
    find("#files").send_keys(path)
    shown("note.txt was uploaded.")
    large = os.path.join(folder, "large.bin")
    with open(large, "wb") as file:
        file.write(os.urandom(17 << 20))
    find("#files").send_keys(large)
    shown("large.bin was uploaded.")
    shown("17.0 MiB")
    check_page("bucket")
    click("note.txt", "a")
    shown("hello from a browser")
    click("Tags")
    find("[name=tags]").send_keys("team=blue")
    check_page("tags")
    click("Save")
    shown("The tags were saved.")
    click("Share")
    click("Make the link")
    link = find("[name=link]").get_attribute("value")
    assert urllib.request.urlopen(link).read() == b"hello from a browser\n"
    click("OK")
    check_page("object")

    browser.get(f"{endpoint}/_console/#/settings/from-console")
    click("Keep versions")
    shown("Every version of an object is kept.")
    click("Add Lifecycle")
    click("Save")
    shown("AbortIncompleteMultipartUpload")
    check_page("settings")
    click("Usage", "a")
    shown("17.0 MiB in 2 objects and 1 buckets")
    # The requests until now, as a picture and as a table.
    name = find(".plot svg[role=img]").get_attribute("aria-label")
    assert name.startswith("Requests by hour, from ") and "Requests 0" not in name, name
    press(lambda: find(".plot:last-of-type summary"))
    assert "MiB" in find(".plot:last-of-type table tbody").text
    check_page("usage")
    find("#span").send_keys("The last 30 days")
    shown("Bytes by day")
    check_page("month")
    click("Users", "a")
    click("New user")
    field("uid", "carla")
    field("name", "Carla")
    click("Create")
    shown("Carla")
    click("New key")
    shown("The user has a new key.")
    check_page("user")

    browser.get(f"{endpoint}/_console/#/b/from-console")
    for name in ["large.bin", "note.txt"]:
        press(lambda: find(f"[aria-label='Delete {name}']"))
        press(lambda: find("dialog button.danger"))
        shown(f"{name} was deleted.")
    click("Sign out")
    shown("Access key")
    severe = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    faults = [message for message in severe if "status of 4" not in message]
    assert not faults, faults
finally:
    browser.quit()
