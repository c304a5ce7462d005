/** Elements from names, properties and children. Text is always text: nothing here parses HTML. */

const SVG = "http://www.w3.org/2000/svg";

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) if (value !== null) made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined));
  return made;
}

export const element = (name, properties, ...children) => fill(document.createElement(name), properties, children);
export const drawn = (name, properties, ...children) => fill(document.createElementNS(SVG, name), properties, children);
