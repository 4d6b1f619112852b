// Selects what explorer-data.js holds, which the spec computed, and draws it. Decides nothing.
(function () {
  "use strict";
  const data = HITPROOF;
  const form = document.getElementById("explorer-choices");
  const said = document.getElementById("explorer-said");
  const strips = document.getElementById("explorer-strips");
  const LABEL = 110, CELL = 34; // pixels
  let chosen = Object.assign({}, data.start, read());

  function read() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // The choices that there are, by name, given the choices before them.
  function options() {
    const found = { groups: Object.keys(data.sizes) };
    if (!found.groups.includes(chosen.groups)) chosen.groups = found.groups[0];
    Object.assign(found, data.sizes[chosen.groups]);
    settle(found);
    found.EAGLE = ["off", "on"].filter((eagle) => key(found, eagle) in data.cases);
    settle(found);
    found.retention = data.retentions;
    found.prompt = data.prompts;
    settle(found);
    const { retention, prompt } = chosen;
    const [resend] = current(found).prompts[prompt][retention];
    found.hit = Object.keys(current(found).hits).filter((hit) => Number(hit) <= resend);
    if (!found.hit.includes(String(chosen.hit))) chosen.hit = String(resend);
    if (!found.hit.length) found.hit = ["0"];
    return found;
  }

  function settle(found) {
    for (const [name, values] of Object.entries(found)) {
      const texts = values.map(String);
      if (!texts.includes(String(chosen[name]))) chosen[name] = texts[texts.length - 1];
    }
  }

  function key(found, eagle) {
    const names = ["groups", ...Object.keys(data.sizes[chosen.groups])];
    return [...names.map((name) => chosen[name]), eagle].join("|");
  }

  function current(found) {
    return data.cases[key(found, chosen.EAGLE)];
  }

  function draw() {
    const found = options();
    const active = document.activeElement && document.activeElement.name;
    form.replaceChildren(...Object.entries(found).map(([name, values]) => control(name, values)));
    if (active && form.elements[active]) form.elements[active].focus();
    const now = current(found);
    const [resend, extension, registered] = now.prompts[chosen.prompt][chosen.retention];
    said.textContent =
      `A resend of the prompt hits ${resend} tokens, an extension of it ${extension}. ` +
      `Hits are multiples of ${now.alignment} tokens.`;
    const runs = now.hits[chosen.hit];
    strips.replaceChildren(
      ...now.groups.map((group, at) => strip(group, registered[at], runs && runs[at]))
    );
    const told = Object.keys(found).map((name) => [name, chosen[name]]);
    history.replaceState(null, "", "#" + new URLSearchParams(told));
  }

  function control(name, values) {
    const id = "choose-" + name.replaceAll(" ", "-");
    const select = element("select", { name, id });
    for (const value of values) {
      const option = element("option", { value }, String(value));
      option.selected = String(value) === String(chosen[name]);
      select.append(option);
    }
    select.addEventListener("change", () => {
      chosen[name] = select.value;
      draw();
    });
    const label = name === "hit" ? "hit to show" : name;
    return element("div", {}, element("label", { for: id }, label), select);
  }

  function strip(group, registered, run) {
    const count = Math.floor(chosen.prompt / group.size);
    const blocks = [...Array(count).keys()];
    const held = new Set(registered.flatMap(([a, z]) => blocks.slice(a, z + 1)));
    const [start, letters, sentence] = run || [0, "", "No hit, so nothing is needed."];
    const end = run ? chosen.hit / group.size : -1;
    const cells = (block) => [
      String(block),
      held.has(block) ? "#" : ".",
      letters[block - start] || ".",
    ];
    const room = Math.max(4, Math.floor((strips.clientWidth - LABEL) / CELL));
    const perLine = room > group.segment ? room - (room % group.segment) : room;
    const lines = [];
    for (let first = 0; first < count; first += perLine) {
      const shown = blocks.slice(first, first + perLine);
      const rows = ["block", "registered", "hit needs"].map((label, row) =>
        element(
          "tr", {},
          element("th", { scope: "row" }, label),
          ...shown.map((block) => cell(cells(block)[row], label, block, group.segment, row === 2 && end))
        )
      );
      lines.push(element("table", { class: "cells strip" }, ...rows));
    }
    return element(
      "section", {},
      element("h3", {}, group.title),
      ...lines,
      element("p", {}, count ? sentence : "The prompt fills no block.")
    );
  }

  // One block in one row; `end` is the block edge at which the hit ends, if the row marks it.
  function cell(sign, label, block, segment, end) {
    const classes = [sign === "#" ? "held" : /[a-zA-Z]/.test(sign) ? sign : "none"];
    if (block % segment === 0) classes.push("boundary");
    if (block === end) classes.push("hit");
    if (block + 1 === end) classes.push("hit-after");
    const title = `block ${block}, ${label}: ${data.signs[sign] || sign}`;
    return element("td", { class: classes.join(" "), title }, sign);
  }

  window.addEventListener("hashchange", () => {
    Object.assign(chosen, read());
    draw();
  });
  window.addEventListener("resize", draw);
  draw();
})();
