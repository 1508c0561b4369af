/** Indices of the haystacks that hold every word of the query. */
export function searchIndices(haystacks: string[], query: string): number[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matching: number[] = [];
  haystacks.forEach((text, i) => {
    if (words.every((word) => text.includes(word))) matching.push(i);
  });
  return matching;
}

/** The set with the member, behind the others, or without it if it had it. */
export function toggled<T>(set: ReadonlySet<T>, member: T): Set<T> {
  const others = new Set(set);
  return others.delete(member) ? others : others.add(member);
}
