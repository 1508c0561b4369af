"""What `Tab` runs in the page."""

# TensorBoard keeps a frame for each plugin that was opened, and shows one.
FRAME = """[...document.querySelectorAll('iframe')].find(
    one => one.src.includes('torch_compile') && one.checkVisibility())"""
EMPTY = f"""
    const [page, done] = arguments;
    const frame = location.href.startsWith(page) && {FRAME};
    if (!frame || frame.contentWindow.location.href === 'about:blank') done(frame || null);
    else {{
        frame.addEventListener('load', () => done(frame), {{ once: true }});
        frame.contentWindow.location.replace('about:blank');
    }}
"""
LOAD = """
    const [frame, address, done] = arguments;
    history.pushState(null, '', address);
    frame.addEventListener('load', () => done(), { once: true });
    frame.contentWindow.location.replace(frame.src);
"""
# The tab hears of it before we do.
GO = """
    const [places, done] = arguments;
    const next = () => {
        const place = places.shift();
        if (place === undefined) done();
        else if (parent.location.hash === place) next();
        else {
            parent.addEventListener('hashchange', () => setTimeout(next), { once: true });
            parent.location.hash = place;
        }
    };
    next();
"""
# Keys begin at the top, and no menu is open.
AS_LOADED = """
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute('tabindex');
    document.querySelectorAll('header details[open]').forEach((menu) => menu.open = false);
"""
HERE = f"""
    const [page, holds] = arguments;
    const frame = location.href.startsWith(page) && {FRAME};
    return frame && frame.contentWindow.logdirHeld === holds && frame;
"""
LOOK = """
    const [patience, values, done] = arguments;
    const condition = function () { %s };
    const end = performance.now() + patience;
    const value = () => { try { return condition.apply(null, values); } catch { return null; } };
    const look = () => {
        const now = value();
        if (now || performance.now() > end) done(now || null);
        else setTimeout(look, 20);
    };
    look();
"""
# Visible text with plain spaces (numbers and units have a narrow one between them) and no empty lines.
TEXT = """
    const textOf = (e) => !e?.checkVisibility({ visibilityProperty: true }) ? ''
        : (e.innerText ?? e.textContent).replace(/[\\u00a0\\u202f\\t ]+/g, ' ').replace(/ ?\\n[\\n ]*/g, '\\n').trim();
"""
LOADED = "!document.querySelector('header .busy, .reading')"
CLICKABLE = f"""
    {TEXT}
    const [css, text] = arguments;
    const seen = e => e.checkVisibility({{ visibilityProperty: true }}) && textOf(e).includes(text);
    const one = [...document.querySelectorAll(css)].find(seen);
    const place = one && JSON.stringify(one.getBoundingClientRect());
    const rests = place === window.placeOfLastLook;
    window.placeOfLastLook = place;
    if (!one || !({LOADED} || rests)) return null;
    window.arrived = false;
    one.addEventListener('click', () => window.arrived = true, {{ capture: true, once: true }});
    return one;
"""
ASKED = """
    const all = [...parent.document.querySelectorAll('iframe')];
    const frames = all.map(one => one.contentDocument && one.contentWindow);
    return [parent, ...frames.filter(Boolean)].flatMap(({ performance }) => {
        const names = performance.getEntriesByType('resource').map(one => one.name);
        performance.clearResourceTimings();
        return names;
    });
"""
# Keys that come when the focus is there already go nowhere.
STOP_AT = """
    const wanted = arguments[0];
    window.stopTabbing?.();
    const stop = (event) => document.activeElement.matches(wanted) && event.preventDefault();
    window.addEventListener('keydown', stop, true);
    window.stopTabbing = () => window.removeEventListener('keydown', stop, true);
"""
ROWS = """
    const table = [...document.querySelectorAll('table')].find(t => t.ariaLabel === arguments[0]);
    const rows = [...table.querySelectorAll('tbody tr[data-row]')];
    return rows.length && rows.map(tr => [...tr.cells].map(td => td.innerText.trim()));
"""
