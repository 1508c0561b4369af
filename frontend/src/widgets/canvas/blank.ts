/** The brush of a canvas that is empty, of this size, and as sharp as the screen; it counts in CSS pixels. */
export function blank(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const brush = canvas.getContext('2d')!;
  brush.scale(scale, scale);
  return brush;
}
