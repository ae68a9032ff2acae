// What makes the pages livelier: countdowns, sliders, pages that follow, the stream of events.
// Every page works without it.
"use strict";

const offset = Number(document.documentElement.dataset.now) - Date.now(); // of the service's clock
const now = () => Date.now() + offset;

// Times that are told as a distance

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function distance(at) {
  const seconds = Math.floor(Math.abs(at - now()) / 1000);
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return at > now() ? `in ${text}` : `${text} ago`;
}

function tick() {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = distance(Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 1000);

// The part of a page that is drawn by the server, asked for again

const connection = document.getElementById("connection");

function say(text, isLost) {
  connection.classList.toggle("lost", isLost);
  if (connection.textContent !== text) connection.textContent = text;
}

let asking = null;

async function show(address) {
  asking?.abort();
  const mine = asking = new AbortController();
  const main = document.getElementById("main");
  const late = setTimeout(() => main.classList.add("busy"), 300);
  try {
    const answer = await fetch(address, { signal: AbortSignal.any([mine.signal, AbortSignal.timeout(10000)]) });
    if (answer.redirected && answer.url.endsWith("/login")) return location.assign(answer.url);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!found || asking !== mine) return;
    replace(main, found);
    say("", false);
  } catch (error) {
    if (!mine.signal.aborted) say("The connection is lost; what you see is old. Trying again.", true);
  } finally {
    clearTimeout(late);
    document.getElementById("main").classList.remove("busy");
  }
}

// A slider that is being dragged stays the element it is, and so keeps its focus.
function replace(main, found) {
  const held = document.activeElement?.closest?.("[data-slider]");
  const opened = [...main.querySelectorAll("details")].map((each) => each.open);
  const scrolled = main.querySelector(".timeline")?.scrollTop;
  if (held) found.querySelector("[data-slider]")?.replaceWith(held);
  main.replaceChildren(...found.childNodes);
  found.hasAttribute("data-refresh") ? (main.dataset.refresh = found.dataset.refresh) : delete main.dataset.refresh;
  main.querySelectorAll("details").forEach((each, number) => { each.open = opened[number] ?? false; });
  if (held) centre();
  else if (scrolled) main.querySelector(".timeline")?.scrollTo(0, scrolled);
  if (held) held.querySelector("input[type=range]").focus();
  tick();
}

// The event that is looked at, in the middle of a long timeline
function centre() {
  const timeline = document.querySelector(".timeline"), here = timeline?.querySelector(".here");
  if (here) timeline.scrollTop = here.offsetTop - timeline.offsetTop - timeline.clientHeight / 2;
}
centre();

// Sliders over versions and positions

let dragged = null;

document.addEventListener("input", (event) => {
  const slider = event.target.closest?.("[data-slider]");
  if (!slider || event.target.type !== "range") return;
  slider.querySelector("output").textContent = event.target.value;
  clearTimeout(dragged);
  dragged = setTimeout(() => {
    const address = new URL(location.href);
    for (const [name, value] of new FormData(slider)) address.searchParams.set(name, value);
    history.replaceState(null, "", address);
    show(address);
  }, 60);
});

// Pages that follow what happens

setInterval(() => {
  const main = document.getElementById("main");
  const seconds = Number(main.dataset.refresh);
  if (!seconds || document.hidden || main.contains(document.activeElement) && document.activeElement !== main) return;
  if (Math.floor(Date.now() / 1000) % seconds === 0) show(location.href);
}, 1000);

// The stream of events

const KEPT = 200;
const table = document.querySelector("[data-live]");
if (table) live(table);

function live(table) {
  const button = document.querySelector("[data-live-button]"), state = document.querySelector("[data-live-state]");
  const rows = table.querySelector("tbody");
  let source = null, after = table.dataset.after, paused = false, waiting = [];
  const tell = (text) => { if (state.textContent !== text) state.textContent = text; };

  function open() {
    source = new EventSource(`${table.dataset.live}?after=${after}`);
    source.onopen = () => { say("", false); tell(paused ? "Paused." : "Following the log."); };
    source.onerror = () => {
      tell("The connection is lost; trying again.");
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
    source.onmessage = (message) => take(JSON.parse(message.data));
  }

  function take(event) {
    after = Math.max(after, event.position);
    waiting.push(event);
    if (waiting.length > KEPT) waiting.shift();
    if (paused) tell(`Paused; ${waiting.length === KEPT ? `${KEPT} and more` : waiting.length} new.`);
    else requestAnimationFrame(draw);
  }

  function draw() {
    if (paused) return;
    for (const event of waiting.splice(0)) rows.prepend(row(event));
    while (rows.childElementCount > KEPT) rows.lastElementChild.remove();
    document.querySelector("main > .empty")?.remove();
  }

  function row(event) {
    const line = document.createElement("tr");
    line.className = "fresh";
    const at = new Date(event.recordedAt).toISOString().replace("T", " ").replace("Z", "");
    const name = event.reservationId ?? (event.className ? `${event.className}/${event.objectName}` : event.item);
    const data = JSON.stringify(event.data ?? event.problem);
    line.append(cell("td", String(event.position), "number"), cell("td", at), place(event, name),
      cell("td", event.event), cell("td", data.length > 200 ? `${data.slice(0, 200)}...` : data, "payload"));
    return line;
  }

  function place(event, name) {
    const found = cell("th", "");
    found.scope = "row";
    if (event.item) { found.textContent = name; return found; }
    const link = document.createElement("a");
    const base = event.reservationId ? table.dataset.reservation : table.dataset.object;
    link.href = `${base}/${name.split("/").map(encodeURIComponent).join("/")}`;
    link.textContent = name;
    found.append(link);
    return found;
  }

  function cell(kind, text, className) {
    const found = document.createElement(kind);
    found.textContent = text;
    if (className) found.className = className;
    return found;
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    tell(paused ? "Paused." : "Following the log.");
    draw();
  });
  addEventListener("pagehide", () => source?.close());
  open();
}
