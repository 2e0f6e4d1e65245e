"""The timeline's server side: an index of a run's intervals, and the routes by which a client draws them.

This is the contract between the two. Times are integer nanoseconds since the run's zero. A run is named by
its whole id. What is wrong is answered as `{"error", "hint"}` with status 400, what is not there with 404.

An *interval* told by any JSON answer is `{"table", "row", "lane", "name", "category", "start_ns", "end_ns",
"dur_ns"}`; `row` is the row id in the table (for `steps` the place in it), `category` a number.

`GET /timeline/<run>/lanes?rank=&device=`
    `{"schema": "tracekit.timeline/1", "start_ns", "end_ns", "steps": [{"rank", "step", "name", "start_ns",
    "end_ns"}], "categories": [{"id", "name"}], "lanes": [{"id", "group", "title", "kind", "rank", "device",
    "stream", "pid", "tid", "depth", "rows"}], "left_out", "causes"}`. Lanes come in the order in which they
    are shown and nothing in one overlaps; those of one line (a stream, a thread) follow each other with the
    same title and rising depth. `kind` is device, idle, host, annotation, steps or memory. A lane of memory
    has bytes allocated on a device over time instead of intervals: its `rows` are allocator events, and it
    has `"low"` and `"high"`, the least and the most of the capture, and `"total"`, whether these are the
    allocator's running totals or the change since the capture's start. Only `draw` takes its number. A
    filter by device keeps the host's lanes. `left_out` counts intervals for which there was no
    lane (more than 64 at once in a stream). `causes` says whether the causes of idle time are final; until
    they are, idle intervals have the category `idle` and answers are not to be cached: ask again.

`GET /timeline/<run>/draw?from=&to=&width=&lanes=1,2,5-9`
    Binary, little-endian: `TKT1`, the length of the header as u32, the header as JSON padded with spaces so
    that what follows is aligned to 8 bytes, then the arrays, each padded to 8 bytes. The header is
    `{"from", "to", "width", "causes", "names": [those used], "lanes": [{"id", "mode", "n", "at": {array:
    offset from the end of the header}}]}`. Without `from`, `to` or `lanes` all is meant; `width` is at most
    8,192, and lanes are at most 512. Lanes come in the order asked for.

    * mode `exact`, one element an interval: `start` f64, `dur` f64, `row` u32, `name` u32 (place in
      `names`), `category` u8.
    * mode `density`, one element a pixel column in which something is: `column` u16, `busy` u8 (⌈255 ·
      covered part of the column⌉, at least 1), `category` u8, `row` u32 and `name` u32 of the longest
      interval that touches the column (by its whole duration; of equals the first), `count` u32 of those
      that touch it. Column `c` is from `from + c · (to − from) // width` up to the start of the next.

    * mode `levels`, of memory, one element for the first column and one for each in which the level changes:
      `column` u16, `low`, `high` and `last` f64, in bytes: the least and the most allocated in the column and
      what is allocated from its end on, until the next element.

    All lanes of intervals are exact where they hold 4,000 intervals or fewer in the window together.
    Otherwise a lane is exact when it holds no more than 4,000 over the number of lanes, or than 100.

`GET /timeline/<run>/row/<table>/<row>`
    `{"table", "row", "lane" (null for one left out), "category" (its name), "fields": {column: {"value",
    "unit", "text", "meaning"}}, "launch", "op": intervals or null, "launched": the first 200 device
    intervals that a host row or what it encloses has launched, "launched_total", "parents": the intervals
    around a host row, or around the launch of a device row, the innermost first, "stack": frames, the
    innermost first, "cause", "idle_op": of an idle row, as `idle_gaps` says them, else null, "pending":
    whether these are still being worked out}`. Of an idle row, `launch` is the next launch and `op` what
    held the device up.

`GET /timeline/<run>/search?q=&from=&to=&limit=50`
    `{"total": names that match, "names": [{"name", "count", "sum_ns", "first": interval}]}`: names of
    device and host intervals that contain the text, whatever its case, the largest sums first. An interval
    counts when it is in the range, with the part of it that is.

`GET /timeline/<run>/step?name=|lane=&after=|before=`
    The interval of that exact name, or in that lane, or both, that is the first to start after an instant,
    or the last to start before one; `null` without one.

`GET /timeline/<run>/summary?from=&to=&lanes=` and `summary.csv`
    `{"rows": [{"name", "category" (its name), "count", "sum_ns", "mean_ns", "max_ns", "max": interval}],
    "total": rows in all}`: sums, means and maxima are of the parts in the range; the 500 largest sums. The
    CSV has all rows, and no cell that a spreadsheet takes for a formula.
"""
