"use strict";
{
  // The radio buttons alone switch the theme, in the style sheet. This remembers which was chosen,
  // where the page may store anything. (With autocomplete, a browser would restore an older choice.)
  const key = "hitproof-theme";
  const themes = [...document.querySelectorAll("input[name=theme]")];
  let kept = null;
  try {
    kept = localStorage.getItem(key);
  } catch {}
  for (const theme of themes) {
    if (theme.value === kept) theme.checked = true;
    theme.addEventListener("change", () => {
      try {
        localStorage.setItem(key, theme.value);
      } catch {}
    });
  }
}
