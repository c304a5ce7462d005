/** Bytes, and how texts carry them. */

const ENCODER = new TextEncoder();
/** Fails for bytes that are no text, and keeps a byte order mark. */
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const encodeUtf8 = (text: string): Uint8Array => ENCODER.encode(text);

/** The text, or undefined where the bytes are not UTF-8. */
export function decodeUtf8(data: Uint8Array): string | undefined {
  try {
    return DECODER.decode(data);
  } catch {
    return undefined;
  }
}

/** One character for each byte: such texts are equal, and in order, where the bytes are. */
export function binaryText(data: Uint8Array): string {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return text;
}

export const encodeBase64 = (data: Uint8Array): string => btoa(binaryText(data));

/** As RFC 4648, 5 has it, for paths and queries. */
export const encodeBase64Url = (data: Uint8Array): string =>
  encodeBase64(data).replaceAll("+", "-").replaceAll("/", "_");

export const decodeBase64 = (text: string): Uint8Array =>
  Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
