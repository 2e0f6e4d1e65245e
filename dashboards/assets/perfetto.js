/* "Open in Perfetto": its window is opened by the click itself, then given the trace once it answers. */
(() => {
  "use strict";
  const HOME = "https://ui.perfetto.dev";
  const PATIENCE_MS = 20000;
  const EVERY_MS = 100;

  function say(text) {
    const place = document.getElementById("perfetto-said");
    if (place) {
      place.textContent = text;
    }
  }

  async function fetched(address) {
    const response = await fetch(address, { credentials: "same-origin" });
    if (!response.ok) {
      throw new Error(`the server answered ${response.status}`);
    }
    return response.arrayBuffer();
  }

  /* Resolves when the window's page answers PING with PONG; it only listens once it has loaded. */
  function answered(other) {
    return new Promise((resolve, reject) => {
      const began = performance.now();
      const timer = setInterval(() => {
        if (other.closed) {
          finish(reject, new Error("its window was closed"));
        } else if (performance.now() - began > PATIENCE_MS) {
          finish(reject, new Error(`${new URL(HOME).host} did not answer: is this machine offline?`));
        } else {
          other.postMessage("PING", HOME);
        }
      }, EVERY_MS);
      function heard(event) {
        if (event.source === other && event.origin === HOME && event.data === "PONG") {
          finish(resolve);
        }
      }
      function finish(end, value) {
        clearInterval(timer);
        window.removeEventListener("message", heard);
        end(value);
      }
      window.addEventListener("message", heard);
    });
  }

  function download(address) {
    const link = document.createElement("a");
    link.href = address;
    link.download = "";
    link.textContent = "Save the trace";
    link.className = "tk-tool";
    document.getElementById("perfetto-said").append(" ", link);
  }

  async function open(button) {
    const { trace, title } = button.dataset;
    const other = window.open(HOME);
    if (!other) {
      say("The browser blocked the window: allow windows of this page, or open the saved trace by hand.");
      download(trace);
      return;
    }
    button.disabled = true;
    say("Preparing the trace …");
    try {
      const [buffer] = await Promise.all([fetched(trace), answered(other)]);
      other.postMessage({ perfetto: { buffer, title, fileName: `${title}.json.gz` } }, HOME, [buffer]);
      say("Sent to Perfetto.");
    } catch (error) {
      say(`Not sent to Perfetto: ${error.message} `);
      download(trace);
    } finally {
      button.disabled = false;
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("#perfetto");
    if (button) {
      open(button);
    }
  });
})();
