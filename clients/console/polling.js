/** Repeat a task while somebody looks: not in a hidden tab, not while paused, not after `signal`. */

let paused = false;
export const isPaused = () => paused;
export function setPaused(value) {
  paused = value;
}

export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}

export async function every(seconds, signal, task) {
  for (;;) {
    if (!paused && !document.hidden) await task();
    await sleep(seconds * 1000, signal);
  }
}
