"use strict";
{
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: that of the system until the reader presses the button.
  const root = document.documentElement;
  const button = document.querySelector(".theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();

  // Tables: numbers are sorted descending first, texts ascending; empty cells stay last.
  const sort = (head) => {
    const table = head.closest("table");
    const column = head.cellIndex;
    const body = table.tBodies[0];
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const isText = [...body.rows].some((row) => value(row) !== "" && isNaN(value(row)));
    const before = head.getAttribute("aria-sort");
    const ascending = before ? before === "descending" : isText;
    const sign = ascending ? 1 : -1;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (isText ? x.localeCompare(y) : x - y);
    });
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    body.append(...rows);
  };
  all("table.sortable thead th").forEach((head) =>
    head.querySelector("button").addEventListener("click", () => sort(head)));
}
