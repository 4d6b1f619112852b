"""The shadow: the spec beside a real ``KVCacheManager`` while somebody else drives it.

Read in this order: `scope` (what of a manager the spec speaks of), `real` (its cache and tables as
they are), `shadow` (one manager judged, call by call), `lookups` (lookups without a manager),
`hooks` (the calls), `report` (what was judged, and what not), `recorder` (lives as histories), `live`
(the plugin of an engine). The plugin for pytest is `vllm_integration.pytest_shadow`.
"""
