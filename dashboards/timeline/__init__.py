"""Timeline server: an index of a run's intervals, and the routes that a client draws them with.

Times are integer nanoseconds since the run's t0; `<run>` is a full run id. Errors are `{"error", "hint"}`
with status 400, or 404 for something that does not exist.

An *interval* in a JSON response is `{"table", "row", "lane", "name", "category", "start_ns", "end_ns",
"dur_ns"}`; `row` is the row id in the table (the row number for `steps`), `category` a number.

With the parameter `clocks=aligned`, all routes subtract the offset of its rank from each time, in requests
and responses; `fields` of a row are as recorded. Without matched collectives, nothing is subtracted.

`GET /timeline/<run>/clocks`
    `{"ranks": [{"rank", "offset_ns", "spread_ns", "collectives"}], "without": ranks that cannot be aligned}`,
    as in `analyses/shared/clocks.py`; the first rank is the reference. `ranks` is empty without matched
    collectives.

`GET /timeline/<run>/lanes?rank=&device=`
    `{"schema": "tracekit.timeline/1", "start_ns", "end_ns", "steps": [{"rank", "step", "name", "start_ns",
    "end_ns"}], "categories": [{"id", "name"}], "lanes": [{"id", "group", "title", "kind", "rank", "device",
    "stream", "pid", "tid", "depth", "rows", "process_group" (of its collectives, or null)}], "left_out",
    "causes", "several_ranks"}`. Lanes are in display order, and the intervals of a lane do not overlap; the
    lanes of one line (a stream, a thread) are adjacent, with the same title and increasing depth. `kind` is
    device, idle, host, annotation, steps, memory or counter. A lane of memory has bytes allocated on a device
    over time instead of intervals, one of a counter its samples: `rows` counts allocator events or samples,
    `"low"` and `"high"` are the minimum and maximum of the capture, `"unit"` is theirs, `"limit"` what they
    cannot exceed (null if unknown), and `"total"` whether these are the allocator's running totals, or
    changes since the start of the capture. Only `draw` accepts these lanes. A filter by device keeps the
    host's lanes.
    `left_out` counts intervals without a lane (more than 64 concurrent ones in a stream). `causes` is
    whether the causes of idle time are final; until then, idle intervals have the category `idle`, and
    responses must not be cached.

`GET /timeline/<run>/draw?from=&to=&width=&lanes=1,2,5-9`
    Binary, little-endian: `TKT1`, the length of the header as u32, the header as JSON padded with spaces so
    that the rest is aligned to 8 bytes, then the arrays, each padded to 8 bytes. The header is
    `{"from", "to", "width", "causes", "names": [those used], "lanes": [{"id", "mode", "n", "at": {array:
    offset from the end of the header}}]}`. `from`, `to` and `lanes` default to everything; `width` is at most
    8,192, and at most 512 lanes can be requested. Lanes are in the requested order.

    * mode `exact`, one element per interval: `start` f64, `dur` f64, `row` u32, `name` u32 (index into
      `names`), `category` u8.
    * mode `density`, one element per non-empty pixel column: `column` u16, `busy` u8 (⌈255 ·
      covered part of the column⌉, at least 1), `category` u8, `row` u32 and `name` u32 of the longest
      interval that touches the column (by its full duration; the first on a tie), `count` u32 of intervals
      that touch it. Column `c` is from `from + c · (to − from) // width` up to the start of the next.
    * mode `levels`, for memory and counters, one element for the first column and one for each column in
      which the level changes: `column` u16, `low`, `high` and `last` f64, in the lane's unit: the minimum and
      maximum in the column, and the level from its end until the next element; NaN where it is unknown.

    All interval lanes are exact if they have at most 4,000 intervals in the window together. Otherwise a lane
    is exact if it has at most 4,000 divided by the number of lanes, or at most 100.

`GET /timeline/<run>/row/<table>/<row>`
    `{"table", "row", "lane" (null without one), "start_ns", "category" (its name), "fields": {column:
    {"value", "unit", "text", "meaning"}}, "launch", "op": intervals or null, "launched": the first 200 device
    intervals launched by a host row or its children, "launched_total", "parents": the intervals that
    enclose a host row, or the launch of a device row, innermost first, "stack": frames, innermost first,
    "related": fields, as above, that the op and the calls around a device row have (shapes, module,
    collective), and the bandwidth of a copy; "next": the interval that starts next on the stream of a device
    row, or null, "cause", "idle_op", "source": of an idle row, from `idle_gaps`, else null, "pending":
    whether these are still being computed}`. For an idle row, `launch` is the next launch, `op` the blocking
    op and `source` its source line.

`GET /timeline/<run>/search?q=&mode=text&rank=&device=&from=&to=&limit=50`
    `{"total": names that match, "count": intervals that match, "names": [{"name", "count", "sum_ns",
    "first": interval}]}`: names of device and host intervals, largest sums first. `mode` is `text`
    (contained, ignoring case), `regex` (RE2, ignoring case; the response also has `matched`, the first 5,000
    names), `name` (the whole name) or `category` (contained in the name of the category, or the whole name
    of one; idle time is searched too, `names` are categories, and `categories` has their numbers). Only the
    parts of intervals in the range count.

`GET /timeline/<run>/step?q=&mode=&rank=&device=|lane=&row=TABLE:ROW|at=&by=1|-1|0&order=longest`
    `{"total": matching intervals, "place", "interval"}`: the match that follows (`by=1`) or precedes a row
    or an instant, with its place from 1 in order of start, or from the longest. After the last comes the
    first.
    `by=0` gives the place of the row itself; `place` and `interval` are null if it does not match. With
    `lane`, only that lane is searched, and all its intervals match without `q`.

`GET /timeline/<run>/summary?from=&to=&lanes=` and `summary.csv`
    `{"rows": [{"name", "category" (its name), "count", "sum_ns", "mean_ns", "max_ns", "max": interval}],
    "total": number of rows, "categories": [{"category", "count", "sum_ns", "share" of the range}]}`: sums,
    means and maxima of the parts in the range; the 500 largest sums. The CSV has all rows; spreadsheet
    formulas are quoted.

`GET` and `POST /timeline/<run>/notes`, `POST` and `DELETE /timeline/<run>/notes/<id>`
    `{"notes": [{"from_ns", "to_ns", "row" ("" for none), "text", "id", "written_at"}]}` by start. `POST`
    takes such a note as JSON, without `id` and `written_at`, adds or replaces it, and returns it.

`POST /timeline/<run>/query`, body `{"sql", "rank" (optional)}`
    `{"lanes": [{"rank" (null without one), "depth", "start": [...], "dur": [...], "row": [...]}], "names" (of
    all rows; null without the column), "columns", "values": the other columns of all rows, "more": whether
    the result has more rows, "without_times", "outside", "crowded": rows left out, for lack of times, since
    they are outside of the capture, and since more than 64 overlap}`. `row` is a place in the result.
    If the query fails, the response is an error with status 200. `DELETE` with the same body cancels it.
"""
