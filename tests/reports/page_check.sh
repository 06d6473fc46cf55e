#!/bin/sh
# Opens every page of a folder in headless Chromium, uses it a little, and reports what went wrong.
#   page_check.sh FOLDER
# Exit: 0 all pages work, 1 one does not, 77 there is no browser (with the reason on standard output).
folder=$1
browser=
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then browser=$name; break; fi
done
if [ -z "$browser" ]; then
  echo "no chromium, chromium-browser or google-chrome in PATH"
  exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# Keys, clicks and controls, once the page says it is ready. It runs inside the page, so the page's own counter of errors
# sees whatever they cause.
cat >"$work/use.js" <<'JS'
<script>
(function use() {
  const root = document.documentElement, el = (id) => document.getElementById(id);
  if (root.dataset.state !== "ready") return void setTimeout(use, 20);
  const press = (key) => dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const point = (type, x, y) => {
    const box = el("view").getBoundingClientRect();
    el("view").setPointerCapture = () => {};
    el("view").dispatchEvent(new PointerEvent(type, {clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true}));
  };
  const seen = {details: 0, tips: 0};
  if (!el("timeline").hidden) {
    el("view").focus();
    for (const key of ["w", "s", "a", "d", "0", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "f", "e", "0", "c", "c",
                       "b", "v", "v", "b", "l", "l", "]", "[", "Escape"]) press(key);
    for (let x = 100; x < el("view").clientWidth; x += 37) {
      for (let y = 30; y < el("view").clientHeight; y += 17) {
        point("pointermove", x, y);
        if (!el("tip").hidden && el("tip").textContent.length > 3) ++seen.tips;
      }
      point("pointerdown", x, 45);
      point("pointerup", x, 45);
      if (el("details").querySelector("ol, b")) ++seen.details;
    }
    point("pointerdown", 300, 45);
    point("pointermove", 250, 45);
    point("pointerup", 250, 45);
    el("find").value = "F1@0";
    el("find").dispatchEvent(new Event("input"));
    el("twin").open = true;
    for (const button of [...document.querySelectorAll("[data-sort]")].slice(0, 3)) button.click();
    el("step").value = "-1";
    el("step").dispatchEvent(new Event("change"));
    dispatchEvent(new Event("beforeprint"));
  }
  setTimeout(() => {
    root.dataset.tips = seen.tips;
    root.dataset.details = seen.details;
    root.dataset.found = el("found").textContent;
    root.dataset.used = "yes";
  }, 100);
})();
</script>
JS

failed=0
complain() { echo "$(basename "$page"): $1"; failed=1; }
for page in "$folder"/*.html; do
  [ -e "$page" ] || { echo "no pages in $folder"; exit 1; }
  sed '/<\/body>/,$d' "$page" >"$work/page.html"
  cat "$work/use.js" >>"$work/page.html"
  echo '</body></html>' >>"$work/page.html"
  for size in 1440,900 390,844; do
    timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --enable-logging=stderr \
      --virtual-time-budget=20000 --window-size=$size --dump-dom "file://$work/page.html" >"$work/dom" 2>"$work/log"
    head -c 2000 "$work/dom" | grep -o '<html[^>]*>' >"$work/root"
    grep -q 'data-state="ready"' "$work/root" || complain "is not ready at $size: $(cat "$work/root")"
    grep -q 'data-used="yes"' "$work/root" || complain "did not get through the keys and clicks at $size"
    grep -q 'data-errors="0"' "$work/root" || complain "errors in its script at $size"
    if grep -E 'CONSOLE.*(Uncaught|Refused|Error)' "$work/log"; then complain "errors on the console at $size"; fi
    echo "$(basename "$page") $size $(tr ' ' '\n' <"$work/root" | grep -E '^data-(boxes|events|frame|tips|details|found)' | tr '\n>' '  ')"
  done
done
exit $failed
