import { describe, expect, it } from 'vitest';
import { GROUPS, PANEL_TITLES } from '../../src/names/words';
import { toStepPart, withoutSmall } from '../../src/panels/overview/part_links';
import type { Compile } from '../../src/api/types';

describe('the sidebar', () => {
  it('has each panel once', () => {
    const panels = GROUPS.flatMap((group) => group.panels);
    expect(panels.toSorted()).toEqual(Object.keys(PANEL_TITLES).toSorted());
  });
});

const PLAIN = new Event('click');
const SHIFT = Object.assign(new Event('click'), { shiftKey: true });

describe('the parts of a step', () => {
  const recompiled = { recompiles: [{}] } as Compile;

  it('lead to where their rows are', () => {
    expect(toStepPart('gpu gemm', null, PLAIN)).toMatchObject({
      panel: 'kernels',
      category: 'gemm',
      then: null,
    });
    expect(toStepPart('idle python', null, PLAIN)).toMatchObject({
      panel: 'step',
      section: 'ledger',
      'search.ledger': 'python',
    });
    expect(toStepPart('host python', null, PLAIN)).toMatchObject({ panel: 'operators' });
    expect(toStepPart('idle compiling', null, PLAIN)).toMatchObject({ panel: 'compile_time' });
    expect(toStepPart('idle compiling', recompiled, PLAIN)).toMatchObject({ panel: 'recompiles' });
    expect(toStepPart('host compiled_graph', null, PLAIN)).toMatchObject({ panel: 'compilations' });
    expect(toStepPart('gpu rest', null, PLAIN)).toMatchObject({ panel: 'step' });
  });

  it('lead on to the timeline with Shift', () => {
    expect(toStepPart('gpu gemm', null, SHIFT)).toMatchObject({ category: 'gemm', then: 'timeline' });
    expect(toStepPart('idle compiling', recompiled, SHIFT)).toMatchObject({
      'search.ledger': 'compiling',
    });
  });

  it('that are small are one, and sum to what they were', () => {
    const part = (key: string, value: number) => ({ key, value });
    const join = (small: unknown[], value: number) => part(`${small.length}`, value);
    const parts = [part('a', 980), part('b', 9), part('c', 5), part('d', 6)];
    expect(withoutSmall(parts, join)).toEqual([part('a', 980), part('3', 20)]);
    expect(withoutSmall(parts.slice(0, 2), join)).toEqual(parts.slice(0, 2));
  });
});
