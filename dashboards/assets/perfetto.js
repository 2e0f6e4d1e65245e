/* "Open in Perfetto": open its window on click, then send the trace once it responds. */
(() => {
  "use strict";
  const HOME = "https://ui.perfetto.dev";
  const TIMEOUT_MS = 20000;
  const PING_MS = 100;

  function say(text) {
    const place = document.getElementById("perfetto-status");
    if (place) {
      place.textContent = text;
    }
  }

  async function fetchTrace(address) {
    const response = await fetch(address, { credentials: "same-origin" });
    if (!response.ok) {
      throw new Error(`the server returned status ${response.status}`);
    }
    return response.arrayBuffer();
  }

  /* Resolve when the window answers PING with PONG, which it does once it has loaded. */
  function waitForPong(other) {
    return new Promise((resolve, reject) => {
      const began = performance.now();
      const timer = setInterval(() => {
        if (other.closed) {
          finish(reject, new Error("its window was closed"));
        } else if (performance.now() - began > TIMEOUT_MS) {
          finish(reject, new Error(`no response from ${new URL(HOME).host}: is this machine offline?`));
        } else {
          other.postMessage("PING", HOME);
        }
      }, PING_MS);
      function onMessage(event) {
        if (event.source === other && event.origin === HOME && event.data === "PONG") {
          finish(resolve);
        }
      }
      function finish(end, value) {
        clearInterval(timer);
        window.removeEventListener("message", onMessage);
        end(value);
      }
      window.addEventListener("message", onMessage);
    });
  }

  function addDownloadLink(address) {
    const link = document.createElement("a");
    link.href = address;
    link.download = "";
    link.textContent = "Save the trace";
    link.className = "tk-tool";
    document.getElementById("perfetto-status").append(" ", link);
  }

  async function open(button) {
    const { trace, title } = button.dataset;
    const other = window.open(HOME);
    if (!other) {
      say("The browser blocked the window. Allow pop-ups for this page, or save the trace and open it in Perfetto.");
      addDownloadLink(trace);
      return;
    }
    button.disabled = true;
    say("Preparing the trace …");
    try {
      const [buffer] = await Promise.all([fetchTrace(trace), waitForPong(other)]);
      other.postMessage({ perfetto: { buffer, title, fileName: `${title}.json.gz` } }, HOME, [buffer]);
      say("Sent to Perfetto.");
    } catch (error) {
      say(`Not sent to Perfetto: ${error.message} `);
      addDownloadLink(trace);
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
