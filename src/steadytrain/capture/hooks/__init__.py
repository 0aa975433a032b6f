"""Every hook of steadytrain into Python and torch: script launch, import hook, patches and module hooks.

A hook reports an event and decides nothing.
"""
