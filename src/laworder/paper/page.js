for (const slider of document.querySelectorAll(".overlay input")) {
  const move = () => slider.closest(".overlay").style.setProperty("--mask", slider.value / 100);
  slider.addEventListener("input", move);
  move();
}
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details");
  if (folded) { folded.open = true; target.focus(); }
};
for (const link of document.querySelectorAll("[popover] a")) {
  link.addEventListener("click", () => link.closest("[popover]").hidePopover());
}
addEventListener("hashchange", unfold);
unfold();
