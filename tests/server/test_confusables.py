import pytest

from understudy_server.confusables import confusable_with_champion

ODD = ("champıon", "сhampion", "champion\n", "champion ")
NEAR = ("champi0n", "champlon", "cham-pion", "CHAMP1ON", "champion_", "charnpion", "chanpion", "ch4mpion", "champions")
CLOSE = ("campion", "hampion", "champio", "champiom", "charnpi0ns")
SWAPPED = ("champoin", "chmapion", "hcampion", "champino", "ch4mp0in")
ALIKE = ("cliampion", "c1iampion", "cl-lampion", "CIlampion", "dampion", "diampion", "cilampion")
FREE = ("champion", "Champion", "champion-v2", "champion-of-june", "challenger", "staging", "champ", "campaign", "")


@pytest.mark.parametrize("alias", [*ODD, *NEAR, *CLOSE, *SWAPPED, *ALIKE])
def test_aliases_confusable_with_champion_are_recognised(alias: str) -> None:
    assert "look" in confusable_with_champion(alias)


@pytest.mark.parametrize("alias", FREE)
def test_the_champion_itself_and_other_words_are_free(alias: str) -> None:
    assert confusable_with_champion(alias) == ""
