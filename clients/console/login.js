/**
 * People log in at the issuer that login.json names: OpenID Connect's authorization code with PKCE. The token is in
 * this tab's sessionStorage; what renews it is in memory alone.
 */

const ATTEMPT = "keylane.attempt";
const SESSION = "keylane.session";
/** Of all requests. */
export const QUIET = { cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer" };
const here = location.origin + location.pathname;
let how = {};
let session = null;
let renewal = null;
let renewing = null;
let onChange = () => {};

const encoded = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
const random = () => encoded(crypto.getRandomValues(new Uint8Array(32)));
const stored = (name) => JSON.parse(sessionStorage.getItem(name));
const failed = (detail) => Object.assign(new Error(detail), { problem: { title: "The login failed", detail } });

export const isOffered = () => "issuer" in how;
export const token = () => session?.token ?? "";

function keep(found) {
  session = found;
  if (found) sessionStorage.setItem(SESSION, JSON.stringify(found));
  else sessionStorage.removeItem(SESSION);
  if (!found) renewal = null;
  onChange();
}
export const logOut = () => keep(null);

async function ask(url, options) {
  const ended = () => Promise.reject(failed(`${new URL(url).origin} gave no answer that this page may read.`));
  const answer = await fetch(url, { ...QUIET, redirect: "error", ...options }).catch(ended);
  const found = await answer.json().catch(ended);
  if (!answer.ok) throw failed(`${found.error} ${found.error_description ?? ""}`);
  return found;
}

async function endpoints() {
  if (how.token_endpoint) return;
  const { issuer, authorization_endpoint, token_endpoint } = await ask(`${how.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (issuer !== how.issuer || new URL(authorization_endpoint).protocol !== new URL(how.issuer).protocol) throw failed("The issuer's configuration is of another issuer.");
  how = { ...how, authorization_endpoint, token_endpoint };
}

/** Go to the issuer; it sends the browser back to this page. */
export async function logIn() {
  await endpoints();
  const attempt = { state: random(), nonce: random(), verifier: random(), hash: location.hash };
  const challenge = encoded(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(attempt.verifier)));
  const url = new URL(how.authorization_endpoint);
  const { state, nonce } = attempt;
  const { client_id, scope } = how;
  const asked = { response_type: "code", client_id, redirect_uri: here, scope, state, nonce, code_challenge: challenge, code_challenge_method: "S256" };
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  sessionStorage.setItem(ATTEMPT, JSON.stringify(attempt));
  location.assign(url);
}

/** Its issuer has sent the token to this page itself, over TLS, so the signature says nothing more (OIDC Core, 3.1.3.7). */
function checked(idToken, nonce) {
  let claims = {};
  try {
    const bytes = Uint8Array.from(atob(idToken.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
    claims = JSON.parse(new TextDecoder().decode(bytes));
  } catch {} // of no issuer
  if (claims.iss !== how.issuer || ![claims.aud].flat().includes(how.client_id) || (nonce && claims.nonce !== nonce) || (session && claims.sub !== session.sub)) throw failed("The issuer's token is not for this login.");
  return claims;
}

async function exchange(given, nonce) {
  await endpoints();
  const found = await ask(how.token_endpoint, { method: "POST", body: new URLSearchParams({ ...given, client_id: how.client_id }) });
  const claims = found.id_token || nonce ? checked(found.id_token, nonce) : session;
  const isId = how.token === "id";
  const text = isId ? found.id_token : found.access_token;
  if (!text) throw failed(`The issuer gave no ${how.token} token.`);
  renewal = found.refresh_token ?? renewal;
  keep({ token: text, sub: claims.sub, issuer: how.issuer, until: isId ? claims.exp * 1000 : Date.now() + (found.expires_in ?? 3600) * 1000 });
}

const renewed = () => (renewing ??= exchange({ grant_type: "refresh_token", refresh_token: renewal }).catch(() => {}).finally(() => (renewing = null)));

/** Before each request: renew a token that ends soon; without the means, and after its end, there is none. */
export async function renew() {
  if (!session || Date.now() < session.until - 30_000) return;
  if (renewal) await renewed();
  if (session && Date.now() >= session.until) keep(null);
}

/** Whether there is another token than one that the service has refused: it may have ended on the way. */
export async function isReplaced(refused) {
  if (session?.token === refused && renewal) await renewed();
  return session !== null && session.token !== refused;
}

async function finish(given) {
  const attempt = stored(ATTEMPT);
  sessionStorage.removeItem(ATTEMPT);
  history.replaceState(null, "", here + (attempt?.hash ?? ""));
  if (!attempt || attempt.state !== given.get("state") || (given.has("iss") && given.get("iss") !== how.issuer)) throw failed("The answer is not one to a login of this page.");
  if (!given.has("code")) throw failed(`${given.get("error")} ${given.get("error_description") ?? ""}`);
  await exchange({ grant_type: "authorization_code", code: given.get("code"), redirect_uri: here, code_verifier: attempt.verifier }, attempt.nonce);
}

/** Learn how to log in, and end a login whose answer is in the address. `changed` is called for each change. */
export async function begin(changed) {
  const answer = await fetch("login.json").catch(() => null);
  how = answer?.ok ? await answer.json() : {};
  const kept = stored(SESSION);
  session = kept?.issuer === how.issuer ? kept : null;
  onChange = changed;
  const given = new URLSearchParams(location.search);
  try {
    if (isOffered() && given.has("state")) {
      session = null;
      await finish(given);
    }
  } finally {
    changed();
  }
}
