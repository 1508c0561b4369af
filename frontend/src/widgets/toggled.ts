/** The set with the member, behind the others, or without it if it had it. */
export function toggled<T>(set: ReadonlySet<T>, member: T): Set<T> {
  const others = new Set(set);
  return others.delete(member) ? others : others.add(member);
}
