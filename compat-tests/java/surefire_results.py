"""Turns Surefire's reports into result lines: an aborted assumption is a feature that this client version does not have."""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

client, folder = sys.argv[1], pathlib.Path(sys.argv[2])
count = failed = 0
for report in sorted(folder.glob("TEST-*.xml")):
    for case in ElementTree.parse(report).iter("testcase"):
        count += 1
        feature = f"{case.get('classname').split('.')[-1].removesuffix('Test')}: {case.get('name').split('(')[0]}"
        fault = case.find("failure") if case.find("failure") is not None else case.find("error")
        if fault is not None:
            failed += 1
            print(fault.text)
            detail = (fault.get("message") or fault.get("type") or "").replace("\n", " ").replace("\t", " ")[:300]
            print(f"RESULT\t{client}\t{feature}\tfail\t{detail}")
        elif case.find("skipped") is not None:
            print(f"RESULT\t{client}\t{feature}\tabsent\t")
        else:
            print(f"RESULT\t{client}\t{feature}\tpass\t")
if count == 0:
    print(f"no test ran for {client}")
sys.exit(1 if failed or count == 0 else 0)
