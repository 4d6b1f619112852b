"""The shadow: the spec beside a real ``KVCacheManager`` that hitproof does not drive.

Read in this order: `scope` (what of a manager the spec speaks of), `real` (its cache and tables as
they are), `judged` (one manager and its judge), `lives` (its requests), `shadow` (its calls),
`lookups` (lookups without a manager), `hooks` and `watch` (all managers of a process), `report`
(what was judged, and what not), `recorder` (lives as histories), `session` (from start to end),
`live` (the plugin of an engine). The plugin for pytest is `vllm_integration.shadow.pytest_plugin`.
"""
