/** Repeat a task while somebody looks: not in a hidden tab, not while paused, not after `signal`. */

let paused = false;
export const isPaused = () => paused;
export function setPaused(value) {
  paused = value;
}

export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      // A page may be open for days: what has fired leaves nothing behind.
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Resolves once somebody looks and has not paused. */
export async function untilWanted(signal) {
  while (paused || document.hidden) await sleep(500, signal);
}

/** `seconds`: between the end of the task and its next begin; a number, or what returns it. */
export async function every(seconds, signal, task) {
  for (;;) {
    await untilWanted(signal);
    await task();
    await sleep((typeof seconds === "function" ? seconds() : seconds) * 1000, signal);
  }
}
