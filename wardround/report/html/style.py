"""The look of the page: system fonts, calm colours with enough contrast, one column, paper in mind. Light only."""

CSS = """
:root { color-scheme: light; --ink: #1f2933; --quiet: #52606d; --line: #d9e2ec; --tint: #f3f7fa; --accent: #0b5a8a; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink); line-height: 1.55; font-size: 1.0625rem;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .75rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
h3, figcaption { font-size: 1rem; font-weight: 600; margin: 0; }
p { margin: 0 0 1rem; max-width: 48rem; }
.kind { color: var(--quiet); margin: 0 0 1.5rem; }
.summary { background: var(--tint); border-left: 4px solid var(--accent); padding: 1.1rem 1.35rem; margin: 0 0 1.25rem;
  max-width: none; border-radius: 0 4px 4px 0; overflow-wrap: anywhere; }
.notice { border-left: 4px solid #8a6a00; background: #fdf7e3; padding: .8rem 1.1rem; max-width: none; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 0 0 1.5rem; }
.facts div { border: 1px solid var(--line); border-radius: 4px; padding: .7rem .9rem; }
.facts dt { font-size: .875rem; color: var(--quiet); }
.facts dd { margin: 0; font-size: 1.25rem; font-weight: 600; line-height: 1.3; overflow-wrap: anywhere; }
.facts dd + dd { font-size: .875rem; font-weight: 400; color: var(--quiet); }
dl.summary div { display: grid; grid-template-columns: 7.5rem 1fr; gap: 0 1rem; }
dl.summary div + div { margin-top: .55rem; }
dl.summary dt { font-weight: 600; color: var(--accent); }
dl.summary dd { margin: 0; }
section { margin: 0 0 1.75rem; }
ul { margin: 0 0 1rem; padding-left: 1.3rem; max-width: 48rem; }
li { margin: 0 0 .4rem; overflow-wrap: anywhere; }
figure { margin: 0 0 1.25rem; min-width: 0; }
figcaption { margin-bottom: .25rem; overflow-wrap: anywhere; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(17.5rem, 1fr)); gap: .5rem 1.5rem; }
.chart { width: 100%; overflow: hidden; }
.scroll { overflow-x: auto; margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); font-size: .875rem; padding: 0 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .9rem .45rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; overflow-wrap: break-word; }
thead th { color: var(--quiet); border-bottom: 1.5px solid #9fb3c8; }
tbody th { font-weight: 500; overflow-wrap: anywhere; min-width: 6rem; }
.numbers { table-layout: fixed; }
.interval { display: block; color: var(--quiet); font-size: .875rem; }
.undefined { color: #7a4300; font-style: italic; font-size: .875rem; }
.sign { display: inline-block; width: 1.1em; color: var(--accent); }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875em; }
code { overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); padding: .55rem 0; }
summary { cursor: pointer; font-weight: 500; color: var(--accent); }
details[open] > summary { margin-bottom: .75rem; }
section > * + h3 { margin-top: 1.25rem; } section > h2 + h3 { margin-top: 0; }
.answer { font-size: 1.75rem; line-height: 1.25; font-weight: 650; margin: 0 0 .75rem; max-width: none;
  letter-spacing: -.01em; overflow-wrap: anywhere; }
.lead { font-size: 1.125rem; max-width: none; overflow-wrap: anywhere; }
.tag { display: inline-block; font-size: .8125rem; font-weight: 600; padding: 0 .5rem; border-radius: 1rem;
  border: 1px solid; white-space: nowrap; color: var(--quiet); }
.tag.taken { color: #fff; background: #0b5a8a; border-color: #0b5a8a; }
a { color: var(--accent); }
.contents ul { list-style: none; padding: 0; margin: 0 0 1.25rem; max-width: none; font-size: .875rem;
  display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; }
.contents li { margin: 0; }
.flow { margin: 0 0 1.5rem; max-width: 48rem; }
.flow .step { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1.25rem; align-items: center; }
.flow .step + .step::before { content: "↓"; grid-column: 1; text-align: center; color: var(--quiet); }
.flow .step + .step > :first-child { grid-column: 1; }
.flow .parts { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 0 .75rem; }
.flow .parts::before { grid-column: 1 / -1 !important; text-align: left !important; padding-left: 25%; }
.flow .box { border: 1px solid #9fb3c8; border-radius: 4px; padding: .5rem .8rem; margin: 0; text-align: center; }
.flow .gone { list-style: none; margin: 0; padding: 0 0 0 .9rem; border-left: 2px dashed #9fb3c8; color: var(--quiet);
  font-size: .9375rem; }
.level { padding-left: 1.1rem; font-weight: 400; } .quiet { color: var(--quiet); }
:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px; }
.sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
footer { color: var(--quiet); font-size: .875rem; padding-bottom: 3rem; }
@media (max-width: 34rem) {
  body { font-size: 1rem; } h1 { font-size: 1.6rem; } .answer { font-size: 1.4rem; }
  dl.summary div { display: block; }
  main, footer { padding: 0 1rem; } header { padding: 1.5rem 1rem 0; }
  .flow .step { grid-template-columns: 1fr; } .flow .parts { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .flow .parts .box { padding: .4rem .3rem; font-size: .875rem; } .flow .gone { margin: .4rem 0; }
}
@page { size: A4; margin: 16mm 15mm; }
@media print {
  body { font-size: 10pt; }
  header, main, footer { max-width: none; padding: 0; }
  h1 { font-size: 20pt; } h2 { font-size: 13pt; padding-top: 10pt; break-after: avoid; }
  .side { grid-template-columns: 1fr 1fr; }
  figure, tr, .facts div, li { break-inside: avoid; }
  .scroll { overflow: visible; } table { min-width: 0 !important; font-size: 8.5pt; }
  th, td { padding-right: .5rem; }
  details:not([open]) { display: none; }
  .answer { font-size: 17pt; }
  .summary, .notice, .tag { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  p, li { orphans: 3; widows: 3; }
}
"""
