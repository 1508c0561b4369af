/** What each piece of a text is, line by line, for its colour. Pieces stay text: no HTML is made. */
import { scoped } from './languages';
import { segments } from './segments';
import { SCOPES, TokenWriter, type Tokens } from './tokens';

/** Tokens of a text; a language that is not known stays plain. */
export function highlight(text: string, language: string): Tokens {
  const writer = new TokenWriter();
  for (const segment of segments(text.replaceAll('\r\n', '\n'), language)) {
    if (segment.language === 'string') writer.add(segment.text, SCOPES.indexOf('string'));
    else
      for (const [piece, scope] of scoped(segment.text, segment.language))
        writer.add(piece, SCOPES.indexOf(scope));
  }
  return writer.end();
}
