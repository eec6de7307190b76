"""How the report looks: light or dark as the reader's system is, narrow or wide, on paper; no font or file from elsewhere."""

STYLE = """
:root{color-scheme:light dark;--tw-ink:#1d2330;--tw-faint:#5c6474;--tw-rule:#c9ced8;--tw-paper:#fff;--tw-shade:#f3f5f9;--tw-link:#2f54c4}
@media (prefers-color-scheme:dark){:root{--tw-ink:#e6e9f0;--tw-faint:#a3abbb;--tw-rule:#454c5c;--tw-paper:#161a22;--tw-shade:#1f2530;--tw-link:#9db8ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--tw-paper);color:var(--tw-ink);font:16px/1.55 system-ui,sans-serif;overflow-wrap:anywhere}
main,header,nav{max-width:52rem;margin:0 auto;padding:0 1rem}
header{padding-top:2rem}h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.35rem;margin:3rem 0 .4rem;padding-top:.6rem;border-top:1px solid var(--tw-rule)}
h2 small{color:var(--tw-faint);font-weight:400;margin-right:.4rem}
a{color:var(--tw-link)}p{margin:.6rem 0}.tw-lead{font-size:1.05rem}.tw-dim{color:var(--tw-faint)}
nav ol{columns:13rem;padding-left:1.6rem}
.tw-wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.86rem;min-width:50%}
caption{text-align:left;color:var(--tw-faint);padding:.2rem 0}th,td{text-align:left;vertical-align:top;padding:.22rem .8rem .22rem 0;border-bottom:1px solid var(--tw-rule)}
th{font-weight:600}.tw-n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td .tw-bar{display:block;height:.8rem;min-width:2px;background:#4269d0;border-radius:2px}td:has(.tw-bar){min-width:8rem}
.tw-hex{font-family:ui-monospace,monospace;white-space:pre}
.tw-in{margin-left:1.4rem;font-size:.92rem;color:var(--tw-faint)}
td,th{overflow-wrap:break-word}td:not(.tw-n):last-child{min-width:8.5rem}
figure{margin:1.2rem 0;overflow-x:auto}figure>svg[viewBox]{min-width:min(34rem,var(--tw-least,34rem))}figcaption{color:var(--tw-faint);font-size:.9rem;margin-top:.3rem}.tw-chart>svg{width:100%;height:auto}
.tw-chart svg>rect:first-of-type{fill:var(--tw-paper)}.tw-chart svg text{fill:var(--tw-ink)}
.tw-chart svg line{stroke:var(--tw-rule)}
.tw-tokens{display:flex;flex-wrap:wrap;gap:.3rem .15rem;font-family:ui-monospace,monospace}
.tw-tokens span{padding:.1rem .3rem;border-radius:.25rem;white-space:pre}.tw-tokens small{display:block;font-size:.68rem}
.tw-t0{background:#4269d033}.tw-t1{background:#efb11840}.tw-t2{background:#3ca95138}.tw-t3{background:#a463f233}
.tw-on{outline:2px solid #d6432f}
details{margin:1rem 0}summary{cursor:pointer;color:var(--tw-link)}
pre{background:var(--tw-shade);padding:.7rem;overflow-x:auto;font-size:.82rem}
footer{margin:3rem 0 2rem;color:var(--tw-faint);font-size:.88rem}
@media print{:root{--tw-paper:#fff;--tw-ink:#000;--tw-faint:#444;--tw-rule:#bbb}body{font-size:10.5pt}nav{display:none}
h2{break-after:avoid}figure,tr{break-inside:avoid}.tw-wide{overflow:visible}a{color:inherit;text-decoration:none}}
"""
