"""The interface's words in another language: found in their places, read as a whole, replaced when a site is built.

Every text stands in the template, script or module that shows it. One walk over a file finds its texts
(:mod:`.templates`, :mod:`.scripts`, :mod:`.modules`, :mod:`.shared`); with a collector it makes the template of
gettext (:mod:`.messages`), with a catalog it makes a translated file (:mod:`.package`). What is found and what can be
translated is therefore the same.
"""
