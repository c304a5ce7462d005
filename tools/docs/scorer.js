// What Sphinx' search takes instead of its own Scorer: the same numbers, and pages first whose titles have the
// words as they were typed.
var Scorer = {
  score: ([, , anchor, , score, , kind]) => score + (kind === "title" && !anchor ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
