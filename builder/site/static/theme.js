// Before the page is drawn, so that nothing moves or flashes later: what needs scripts is shown, and the theme is the
// one that the reader chose last time. Without one, it is the system's.
"use strict";
(() => {
  document.documentElement.classList.add("scripts");
  let theme = null;
  try {
    theme = localStorage.getItem("vetted-theme");
  } catch {
    // storage is switched off
  }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
