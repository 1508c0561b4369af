let context: CanvasRenderingContext2D | null | undefined;

/** Width of a text in the tab's font, in pixels; an estimate where there is no canvas (tests). */
export function textWidth(text: string, bold = false): number {
  if (context === undefined) {
    context = typeof document === 'undefined' ? null : document.createElement('canvas').getContext('2d');
  }
  if (!context) return text.length * 7;
  const style = getComputedStyle(document.body);
  context.font = `${bold ? 600 : 400} ${style.fontSize} ${style.fontFamily}`;
  return context.measureText(text).width;
}
