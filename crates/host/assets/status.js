// Replaces the parts of the page that change. While there is no answer, the page says how old it is.
const parts = ["facts", "charts", "tables", "metrics", "age"];
let shown = Date.now();
setInterval(async () => {
  if (document.hidden) return;
  try {
    const reply = await fetch("/", { cache: "no-store" });
    if (!reply.ok) throw new Error(reply.status);
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    for (const id of parts) document.getElementById(id).innerHTML = fresh.getElementById(id).innerHTML;
    document.title = fresh.title;
    document.body.classList.remove("stale");
    shown = Date.now();
  } catch {
    document.body.classList.add("stale");
    document.getElementById("age").textContent = `no answer for ${Math.round((Date.now() - shown) / 1000)} s`;
  }
}, 2000);
