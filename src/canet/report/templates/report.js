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

  // Legends: highlight one contender at a time.
  all(".legend").forEach((legend) => {
    const charts = legend.nextElementSibling;
    const buttons = all("button", legend);
    const show = (label) => {
      charts.toggleAttribute("data-only", Boolean(label));
      all(".line, .band", charts).forEach((line) =>
        line.classList.toggle("only", line.dataset.label === label));
    };
    const pressed = () => buttons.find((b) => b.getAttribute("aria-pressed") === "true");
    buttons.forEach((b) => {
      b.addEventListener("click", () => {
        const on = b !== pressed();
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(on && other === b)));
        show(on ? b.dataset.label : "");
      });
      b.addEventListener("mouseenter", () => show(b.dataset.label));
      b.addEventListener("mouseleave", () => show(pressed()?.dataset.label ?? ""));
    });
  });

  // Charts: show the scores at an epoch, by pointer or arrow keys.
  all(".chart").forEach((chart) => {
    const { left, right, top, bottom, epochs, low, high } = chart.dataset;
    const [x0, x1, y0, y1] = [+left, +right, +bottom, +top];
    const svg = chart.querySelector("svg");
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", top);
    cursor.setAttribute("y2", bottom);
    svg.append(cursor);
    let lines = null;
    let tip = null;
    let at = x1;
    const points = (path) => [...path.getAttribute("d").matchAll(/([-\d.]+) ([-\d.]+)/g)]
      .map(([, x, y]) => ({ x: +x, y: +y }));
    const read = () => all(".line", svg).map((line) => ({
      label: line.dataset.label,
      colour: line.classList[1],
      points: points(line.querySelector("path")),
    }));
    const show = (x) => {
      lines ??= read();
      at = Math.min(Math.max(x, x0), x1);
      const epoch = Math.round(1 + ((at - x0) / (x1 - x0)) * (epochs - 1));
      const scores = lines.filter((line) => line.points.length).map((line) => {
        const near = line.points.reduce((a, b) => (Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a));
        return { ...line, score: +low + ((y0 - near.y) / (y0 - y1)) * (high - low) };
      }).sort((a, b) => b.score - a.score);
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      cursor.style.visibility = "visible";
      if (!tip) {
        tip = document.createElement("div");
        tip.className = "tip";
        tip.setAttribute("role", "status");
        chart.append(tip);
      }
      const title = document.createElement("b");
      title.textContent = `epoch ${epoch}`;
      tip.replaceChildren(title, ...scores.map(({ label, colour, score }) => {
        const row = document.createElement("span");
        const key = document.createElement("span");
        const swatch = document.createElement("i");
        swatch.className = `swatch ${colour}`;
        swatch.style.margin = "auto 0";
        key.style.gap = "7px";
        key.append(swatch, label);
        row.append(key, score.toFixed(1));
        return row;
      }));
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      const place = at * scale;
      const room = place + 12 + tip.offsetWidth < svg.clientWidth;
      tip.style.left = `${room ? place + 12 : Math.max(0, place - 12 - tip.offsetWidth)}px`;
      tip.style.top = "100%";
    };
    const hide = () => {
      cursor.style.visibility = "hidden";
      tip?.remove();
      tip = null;
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      show(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
    });
    svg.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      show(at + (step * (x1 - x0)) / 40);
    });
  });
}
