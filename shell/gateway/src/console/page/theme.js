// Light or dark: as the system has it, or as the user chose it here.

const KEY = "nacre-theme";

// Browsers may keep nothing for a page, which is no reason to fail.
function kept() {
  try {
    return localStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch { /* It holds until the page is loaded again. */ }
}

export function chooseTheme(select) {
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  select.value = kept();
  apply(select.value);
  select.addEventListener("change", () => {
    keep(select.value);
    apply(select.value);
  });
}
