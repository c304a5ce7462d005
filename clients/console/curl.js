/** The command that sends a request from a shell. */

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Credentials are named, not shown: a command is copied into chats and tickets. */
export function curlOf({ method, url, headers, body }, { hasToken, hasApiKey }) {
  const parts = ["curl -i", ...(method === "GET" ? [] : method === "HEAD" ? ["-I"] : [`-X ${method}`]), quoted(url)];
  if (hasToken) parts.push('-H "Authorization: Bearer $TOKEN"');
  if (hasApiKey) parts.push('-H "x-api-key: $API_KEY"');
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body) parts.push(`--data-raw ${quoted(body)}`);
  return parts.join(" \\\n  ");
}
