// Draws what HITPROOF answers, which docs/translation made of the spec. Decides nothing.
(function () {
  "use strict";
  const form = document.getElementById("explorer-choices");
  const said = document.getElementById("explorer-said");
  const shown = document.getElementById("explorer-answer");
  const LABEL = 110, CELL = 34; // pixels
  let chosen = read();

  function read() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  function ask(what) {
    return py.write(HITPROOF[what](py.read(chosen)));
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function draw() {
    const controls = ask("controls");
    const active = document.activeElement && document.activeElement.name;
    form.replaceChildren(...fieldsets(controls));
    if (active && form.elements[active]) form.elements[active].focus();
    answer();
  }

  // The choices of the engine, then those of each group.
  function fieldsets(controls) {
    const sets = new Map();
    for (const each of controls) {
      const number = each.name.slice(each.label.length);
      const title = number ? `Group${number}` : "Request and engine";
      if (!sets.has(title)) sets.set(title, []);
      sets.get(title).push(control(each));
    }
    return [...sets].map(([title, made]) =>
      element("fieldset", {}, element("legend", {}, title), ...made)
    );
  }

  function control({ name, label, value, options, hint }) {
    const id = "choose-" + name.replaceAll(" ", "-");
    let made;
    if (options) {
      made = element("select", { name, id });
      for (const option of options) made.append(element("option", { value: option }, option));
      if (!options.includes(value)) made.append(element("option", { value }, value));
    } else {
      made = element("input", { name, id, type: "text", spellcheck: "false" });
    }
    made.value = value;
    if (hint) made.setAttribute("aria-describedby", id + "-hint");
    made.addEventListener("input", () => choose(name, made.value));
    return element(
      "div", { class: /^(cached|mask)/.test(name) ? "wide" : "" },
      element("label", { for: id }, label), made,
      ...(hint ? [element("small", { id: id + "-hint" }, hint)] : [])
    );
  }

  // A choice makes the address name all of them. Fields stay as they are unless others are needed,
  // so that what is being typed keeps its place.
  function choose(name, value) {
    const names = () => ask("controls").map((each) => each.name).join();
    const before = names();
    chosen = Object.fromEntries(ask("controls").map((each) => [each.name, each.value]));
    chosen[name] = value;
    history.replaceState(null, "", "#" + new URLSearchParams(chosen));
    if (names() === before) answer();
    else draw();
  }

  function answer() {
    const found = ask("answer");
    said.classList.toggle("refused", "refused" in found);
    if ("refused" in found) {
      said.textContent = found.refused[0].toUpperCase() + found.refused.slice(1) + ".";
      shown.replaceChildren();
      return;
    }
    const valid = found.served ? "valid" : "not valid";
    said.textContent =
      `The longest valid hit is ${found.longest} tokens. ` +
      (found.length === found.longest ? "" : `The hit of ${found.length} tokens is ${valid}. `) +
      `With all blocks registered a resend of the prompt hits ${found.resend} tokens, ` +
      `an extension of it ${found.extension}. Hits are multiples of ${found.alignment} tokens.`;
    shown.replaceChildren(
      ...(found.longer.length
        ? [element("h2", {}, "Why no longer hit is valid"), reasons(found.longer)] : []),
      ...found.groups.map(group),
      element("h2", {}, "All groups together"),
      reasons(found.reasons)
    );
  }

  function reasons(all) {
    return element("ul", {}, ...all.map(([text, number, claim, sentence, clause, quoted]) => {
      const made = element("li", {}, text);
      if (claim) {
        const link = element("a", { href: `${claim}.html`, title: sentence, class: "claim" },
          `claim ${number}: ${claim}`);
        made.append(" ", link);
      }
      if (clause) made.append(element("br", {}), element("q", {}, quoted), " ", element("code", {}, clause));
      return made;
    }));
  }

  function group({ title, segment, rows, reasons: why, judged }) {
    const count = rows.length ? rows[0][1].length : 0;
    const room = Math.max(4, Math.floor((shown.clientWidth - LABEL) / CELL));
    const perLine = room > segment ? room - (room % segment) : room;
    const lines = [];
    for (let first = 0; first < count; first += perLine) {
      const made = rows.map(([label, cells, end]) =>
        element(
          "tr", {},
          element("th", { scope: "row" }, label),
          ...cells.slice(first, first + perLine).map((sign, at) =>
            cell(sign, label, first + at, segment, end))
        )
      );
      lines.push(element("table", { class: "cells strip" }, element("tbody", {}, ...made)));
    }
    return element(
      "section", {},
      element("h2", {}, title),
      ...lines,
      ...(count ? [] : [element("p", {}, "The prompt fills no block.")]),
      ...(judged.length ? [element("h3", {}, "The mask"), reasons(judged)] : []),
      reasons(why)
    );
  }

  // One block in one row; `end` is the block edge at which the hit ends, if the row marks it.
  function cell(sign, label, block, segment, end) {
    const classes = [sign === "#" ? "held" : /[a-zA-Z]/.test(sign) ? sign : "none"];
    if (block % segment === 0) classes.push("boundary");
    if (block === end) classes.push("hit");
    if (block + 1 === end) classes.push("hit-after");
    const title = `block ${block}, ${label}: ${sign}`;
    return element("td", { class: classes.join(" "), title }, sign);
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    chosen = read();
    draw();
  });
  window.addEventListener("resize", answer);
  draw();
})();
