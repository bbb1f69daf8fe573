"use strict";
// Before anything is drawn: the theme that was chosen, the only thing that this page remembers.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is forbidden: the system's theme */ }
